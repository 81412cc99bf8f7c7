// Go's net/http as a peer of the interop suite: an HTTP/2 server and client over cleartext (prior knowledge) and TLS.
//
//	peer server -root DIR [-cert FILE -key FILE] [-http1]
//	peer echo                             prints each request, and answers with what it has seen of it
//	peer get [-cacert FILE] URL...        prints a line a response: STATUS PROTOCOL BYTES SHA256
//	peer put [-cacert FILE] [-again] FILE URL
//	                                      prints a line: STATUS PROTOCOL, and with -again, which opens the connection
//	                                      by another request first, the seconds of the upload
//
// The server prints "listening on URL", and for each body that it was sent "upload NAME BYTES SHA256". It answers an
// upload with that digest. Bodies are hashed as they pass and never held.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: peer server|echo|get|put ..."))
	}
	var err error
	switch os.Args[1] {
	case "server":
		err = serve(os.Args[2:])
	case "echo":
		err = echo(os.Args[2:])
	case "get":
		err = get(os.Args[2:])
	case "put":
		err = put(os.Args[2:])
	default:
		err = fmt.Errorf("no such command: %s", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

func serve(args []string) error {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	root := flags.String("root", ".", "the folder to serve")
	cert := flags.String("cert", "", "certificate chain, PEM")
	key := flags.String("key", "", "private key, PEM")
	http1 := flags.Bool("http1", false, "speak HTTP/1.1 only, as a backend")
	flags.Parse(args)

	files := http.FileServer(http.Dir(*root))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodPost {
			receive(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(*http1)
	protocols.SetHTTP2(!*http1)
	protocols.SetUnencryptedHTTP2(!*http1)
	server := &http.Server{Handler: handler, Protocols: protocols}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if *cert == "" {
		fmt.Printf("listening on http://%s\n", listener.Addr())
		return server.Serve(listener)
	}
	fmt.Printf("listening on https://%s\n", listener.Addr())
	return server.ServeTLS(listener, *cert, *key)
}

func receive(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	count, err := io.Copy(hash, r.Body)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer: upload:", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	fmt.Printf("upload %s %d %s\n", path.Base(r.URL.Path), count, digest)
	fmt.Fprintln(w, digest)
}

func get(args []string) error {
	client, rest, err := newClient(flag.NewFlagSet("get", flag.ExitOnError), args)
	if err != nil {
		return err
	}
	for _, url := range rest {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		hash := sha256.New()
		count, err := io.Copy(hash, response.Body)
		if err != nil {
			return err
		}
		response.Body.Close()
		fmt.Println(response.StatusCode, response.Proto, count, hex.EncodeToString(hash.Sum(nil)))
	}
	return nil
}

func put(args []string) error {
	flags := flag.NewFlagSet("put", flag.ExitOnError)
	again := flags.Bool("again", false, "open the connection by another request first")
	client, rest, err := newClient(flags, args)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		return errors.New("put needs FILE URL")
	}
	file, err := os.Open(rest[0])
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPut, rest[1], file)
	if err != nil {
		return err
	}
	request.ContentLength = info.Size()
	if info.Size() == 0 {
		// To net/http a length of 0 with a body means "unknown".
		request.Body = http.NoBody
	}
	if *again {
		first, err := client.Head(rest[1])
		if err != nil {
			return err
		}
		first.Body.Close()
	}
	begun := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if *again {
		fmt.Println(response.StatusCode, response.Proto, time.Since(begun).Seconds())
	} else {
		fmt.Println(response.StatusCode, response.Proto)
	}
	return nil
}

func newClient(flags *flag.FlagSet, args []string) (*http.Client, []string, error) {
	cacert := flags.String("cacert", "", "certificate authority, PEM")
	flags.Parse(args)
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DisableCompression: true}
	if *cacert != "" {
		pem, err := os.ReadFile(*cacert)
		if err != nil {
			return nil, nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, nil, errors.New("no certificate in " + *cacert)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &http.Client{Transport: transport}, flags.Args(), nil
}
