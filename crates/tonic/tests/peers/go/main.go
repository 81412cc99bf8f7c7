// The service test.Echo and its client on grpc-go. `serve [CERT KEY]` prints its address, `call ADDRESS [CERT]` makes calls
// of all kinds and fails on the first answer that is wrong. Messages are octets.
package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The text of every status that is asked for. It has to be escaped in grpc-message.
const wish = "wie gewünscht: 100 %"

// The largest message that both sides take by default.
const largest = 4 << 20

type octets struct{}

func (octets) Name() string { return "octets" }

func (octets) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (octets) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = bytes.Clone(data)
	return nil
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("serve [CERT KEY], or call ADDRESS [CERT]")
	}
	arguments := os.Args[2:]
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(arguments)
	case "call":
		err = call(arguments)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(arguments []string) error {
	options := []grpc.ServerOption{grpc.ForceServerCodec(octets{})}
	if len(arguments) == 2 {
		tls, err := credentials.NewServerTLSFromFile(arguments[0], arguments[1])
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(tls))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Unary", Handler: unary},
			{MethodName: "Wait", Handler: wait},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Expand", Handler: expand, ServerStreams: true},
			{StreamName: "Collect", Handler: collect, ClientStreams: true},
			{StreamName: "Both", Handler: both, ServerStreams: true, ClientStreams: true},
			{StreamName: "Drip", Handler: drip, ServerStreams: true},
		},
	}, new(any))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	return server.Serve(listener)
}

func unary(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	if err := decode(&message); err != nil {
		return nil, err
	}
	fields, _ := metadata.FromIncomingContext(ctx)
	if wanted := fields.Get("want-status"); len(wanted) > 0 {
		code, err := strconv.Atoi(wanted[0])
		if err != nil {
			return nil, err
		}
		return nil, status.Error(codes.Code(code), wish)
	}
	returned := metadata.MD{}
	for _, name := range []string{"x-text", "x-octets-bin"} {
		returned.Append(name, fields.Get(name)...)
	}
	return &message, grpc.SetHeader(ctx, returned)
}

func wait(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	if err := decode(&message); err != nil {
		return nil, err
	}
	fmt.Println("waiting")
	<-ctx.Done()
	fmt.Println("canceled")
	return nil, status.FromContextError(ctx.Err()).Err()
}

func expand(_ any, stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	var count, size int
	if _, err := fmt.Sscan(string(message), &count, &size); err != nil {
		return err
	}
	answer := bytes.Repeat([]byte("x"), size)
	for range count {
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
	}
	return nil
}

func collect(_ any, stream grpc.ServerStream) error {
	count, size := 0, 0
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			answer := fmt.Appendf(nil, "%d %d", count, size)
			return stream.SendMsg(&answer)
		}
		if err != nil {
			return err
		}
		count, size = count+1, size+len(message)
	}
}

func both(_ any, stream grpc.ServerStream) error {
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

func drip(_ any, stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	if err := stream.SendMsg(&message); err != nil {
		return err
	}
	<-stream.Context().Done()
	fmt.Println("canceled")
	return nil
}

func call(arguments []string) error {
	creds := insecure.NewCredentials()
	if len(arguments) == 2 {
		pem, err := os.ReadFile(arguments[1])
		if err != nil {
			return err
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return errors.New("no certificate")
		}
		creds = credentials.NewClientTLSFromCert(authorities, "")
	}
	channel, err := grpc.NewClient(arguments[0],
		grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.ForceCodec(octets{})))
	if err != nil {
		return err
	}
	defer channel.Close()
	for _, calls := range []func(*grpc.ClientConn) error{
		callUnary, callStatuses, callExpand, callCollect, callBoth, callThousand, callCanceled,
	} {
		if err := calls(channel); err != nil {
			return err
		}
	}
	return nil
}

func echo(channel *grpc.ClientConn, ctx context.Context, message []byte, options ...grpc.CallOption) error {
	var answer []byte
	if err := channel.Invoke(ctx, "/test.Echo/Unary", &message, &answer, options...); err != nil {
		return err
	}
	if !bytes.Equal(message, answer) {
		return fmt.Errorf("%d octets came back of %d", len(answer), len(message))
	}
	return nil
}

func callUnary(channel *grpc.ClientConn) error {
	for _, size := range []int{0, 1, 16_384, 65_536, largest} {
		if err := echo(channel, context.Background(), bytes.Repeat([]byte("m"), size)); err != nil {
			return err
		}
	}
	own := "\x00\x01\xfe\xff"
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-text", "a text", "x-octets-bin", own)
	var head metadata.MD
	if err := echo(channel, ctx, []byte("fields"), grpc.Header(&head)); err != nil {
		return err
	}
	if text, octets := head.Get("x-text"), head.Get("x-octets-bin"); len(text) != 1 || text[0] != "a text" ||
		len(octets) != 1 || octets[0] != own {
		return fmt.Errorf("other fields came back: %q", head)
	}
	return nil
}

func callStatuses(channel *grpc.ClientConn) error {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "want-status", strconv.Itoa(int(code)))
		got := status.Convert(echo(channel, ctx, nil))
		if got.Code() != code || got.Message() != wish {
			return fmt.Errorf("status %v and not %v: %q", got.Code(), code, got.Message())
		}
	}
	var message, answer []byte
	err := channel.Invoke(context.Background(), "/test.Echo/Nothing", &message, &answer)
	if status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("no method: %v", err)
	}
	return nil
}

func callExpand(channel *grpc.ClientConn) error {
	for _, wanted := range [][2]int{{0, 0}, {1, 1}, {100, 10_000}, {5, 1 << 20}} {
		stream, err := open(channel, context.Background(), "Expand", fmt.Appendf(nil, "%d %d", wanted[0], wanted[1]))
		if err != nil {
			return err
		}
		count := 0
		for {
			var answer []byte
			err := stream.RecvMsg(&answer)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if len(answer) != wanted[1] {
				return fmt.Errorf("a message of %d octets and not %d", len(answer), wanted[1])
			}
			count++
		}
		if count != wanted[0] {
			return fmt.Errorf("%d messages and not %d", count, wanted[0])
		}
	}
	return nil
}

// Opens a call with one message.
func open(channel *grpc.ClientConn, ctx context.Context, method string, message []byte) (grpc.ClientStream, error) {
	kind := &grpc.StreamDesc{ServerStreams: true}
	stream, err := channel.NewStream(ctx, kind, "/test.Echo/"+method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(&message); err != nil {
		return nil, err
	}
	return stream, stream.CloseSend()
}

func callCollect(channel *grpc.ClientConn) error {
	for _, sent := range [][2]int{{0, 0}, {1, 1}, {100, 10_000}, {5, 1 << 20}} {
		kind := &grpc.StreamDesc{ClientStreams: true}
		stream, err := channel.NewStream(context.Background(), kind, "/test.Echo/Collect")
		if err != nil {
			return err
		}
		message := bytes.Repeat([]byte("s"), sent[1])
		for range sent[0] {
			if err := stream.SendMsg(&message); err != nil {
				return err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return err
		}
		if wanted := fmt.Sprintf("%d %d", sent[0], sent[0]*sent[1]); string(answer) != wanted {
			return fmt.Errorf("%q and not %q", answer, wanted)
		}
	}
	return nil
}

func callBoth(channel *grpc.ClientConn) error {
	kind := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := channel.NewStream(context.Background(), kind, "/test.Echo/Both")
	if err != nil {
		return err
	}
	for number := range 20 {
		message := fmt.Appendf(nil, "%d", number)
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return err
		}
		if !bytes.Equal(message, answer) {
			return fmt.Errorf("%q and not %q", answer, message)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); !errors.Is(err, io.EOF) {
		return fmt.Errorf("no end: %v", err)
	}
	return nil
}

func callThousand(channel *grpc.ClientConn) error {
	var calls sync.WaitGroup
	failed := make(chan error, 1_000)
	for number := range 1_000 {
		calls.Add(1)
		go func() {
			defer calls.Done()
			failed <- echo(channel, context.Background(), fmt.Appendf(nil, "call %d", number))
		}()
	}
	calls.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// A call that is canceled in its messages, and one whose deadline passes.
func callCanceled(channel *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := open(channel, ctx, "Drip", []byte("one"))
	if err != nil {
		cancel()
		return err
	}
	var answer []byte
	err = stream.RecvMsg(&answer)
	cancel()
	if err != nil {
		return err
	}
	if err := stream.RecvMsg(&answer); status.Code(err) != codes.Canceled {
		return fmt.Errorf("not canceled: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var message []byte
	if err := channel.Invoke(ctx, "/test.Echo/Wait", &message, &answer); status.Code(err) != codes.DeadlineExceeded {
		return fmt.Errorf("the deadline: %v", err)
	}
	return nil
}
