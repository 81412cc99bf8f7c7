// Go's net/http as a server that reads uploads and throws them away, over cleartext (prior knowledge) and TLS.
//
//	discard [-cert FILE -key FILE]
//
// It prints "listening on URL". Its windows are as large as its configuration allows a stream and a connection to have.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

const window = 4<<20 - 1

func main() {
	cert := flag.String("cert", "", "certificate chain, PEM")
	key := flag.String("key", "", "private key, PEM")
	flag.Parse()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	settings := &http.HTTP2Config{MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window}
	server := &http.Server{Handler: handler, Protocols: protocols, HTTP2: settings}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	if *cert == "" {
		fmt.Printf("listening on http://%s\n", listener.Addr())
		log.Fatal(server.Serve(listener))
	}
	fmt.Printf("listening on https://%s\n", listener.Addr())
	log.Fatal(server.ServeTLS(listener, *cert, *key))
}
