// A client of net/http over HTTP/2: `peer URL CERTIFICATE` sends and receives bodies of several sizes, twenty at a time. It trusts
// the certificate.
// The server answers a GET of /N with N bytes, and a POST with what was sent.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("peer URL CERTIFICATE")
	}
	certificate, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	protocols.SetHTTP2(true)
	client := &http.Client{Transport: &http.Transport{
		Protocols:       &protocols,
		TLSClientConfig: &tls.Config{RootCAs: trusted},
	}}
	var exchanges sync.WaitGroup
	failed := make(chan error, 20)
	for number := range 20 {
		exchanges.Add(1)
		go func() {
			defer exchanges.Done()
			failed <- exchange(client, os.Args[1], number)
		}()
	}
	exchanges.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("done")
}

func exchange(client *http.Client, url string, number int) error {
	for _, size := range []int{0, 1, 16_384, 100_000, 2_000_000} {
		size += number
		response, err := client.Get(fmt.Sprintf("%s/%d", url, size))
		got, err := body(response, err)
		if err != nil {
			return err
		}
		if len(got) != size {
			return fmt.Errorf("%d bytes came and not %d", len(got), size)
		}
		returned, err := client.Post(url+"/", "", bytes.NewReader(got))
		back, err := body(returned, err)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, back) {
			return fmt.Errorf("%d other bytes came back of %d", len(back), size)
		}
	}
	return nil
}

func body(response *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != 200 {
		return nil, fmt.Errorf("%s %s", response.Proto, response.Status)
	}
	return io.ReadAll(response.Body)
}
