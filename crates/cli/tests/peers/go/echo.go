package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sort"
	"strings"
)

// A request as a handler of net/http sees it. Octets are the characters U+0000 to U+00FF.
type seen struct {
	Method   string      `json:"method"`
	Target   string      `json:"target"`
	Fields   [][2]string `json:"fields"`
	Body     string      `json:"body"`
	Trailers [][2]string `json:"trailers"`
}

// Serves both versions of HTTP in cleartext, and prints "request JSON" for each request whose body is whole.
func echo(args []string) error {
	flags := flag.NewFlagSet("echo", flag.ExitOnError)
	flags.Parse(args)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			fmt.Println("broken", r.RequestURI)
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		fields := sorted(r.Header)
		fields = append(fields, [2]string{"host", octets(r.Host)})
		if len(r.TransferEncoding) > 0 {
			fields = append(fields, [2]string{"transfer-encoding", strings.Join(r.TransferEncoding, ", ")})
		}
		line, _ := json.Marshal(seen{octets(r.Method), octets(r.RequestURI), fields, octets(string(body)), sorted(r.Trailer)})
		fmt.Printf("request %s\n", line)
		w.Header().Set("content-type", "application/json")
		w.Write(line)
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	return server.Serve(listener)
}

// The fields, each value apart, in the order of their names.
func sorted(header http.Header) [][2]string {
	fields := [][2]string{}
	for name, values := range header {
		for _, value := range values {
			fields = append(fields, [2]string{octets(strings.ToLower(name)), octets(value)})
		}
	}
	sort.SliceStable(fields, func(a, b int) bool { return fields[a][0] < fields[b][0] })
	return fields
}

func octets(text string) string {
	runes := make([]rune, len(text))
	for at := 0; at < len(text); at++ {
		runes[at] = rune(text[at])
	}
	return string(runes)
}
