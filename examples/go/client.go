// Calls a shardcall server through stubs that protoc generates from its .proto files: go run client.go [ADDRESS]
//
// The environment variable SHARDCALL_TOKEN holds the token, SHARDCALL_CA_CERTIFICATE the server's authority: the path of
// a PEM file, or its content, as `shardcall client-config` prints it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/shardcall/shardcall/gen/go/shardcall/v1"
)

func main() {
	address := "localhost:8470"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := callDiff(address); err != nil {
		refusal := status.Convert(err)
		fmt.Fprintf(os.Stderr, "%v: %s\n", refusal.Code(), refusal.Message())
		os.Exit(1)
	}
}

func callDiff(address string) error {
	security, err := transportSecurity(os.Getenv("SHARDCALL_CA_CERTIFICATE"))
	if err != nil {
		return err
	}
	connection, err := grpc.Dial(address, security)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// A token travels in the metadata of every call.
	if token := os.Getenv("SHARDCALL_TOKEN"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}

	info, err := pb.NewServerInfoServiceClient(connection).GetServerInfo(ctx, &pb.GetServerInfoRequest{})
	if err != nil {
		return err
	}
	fmt.Printf("%s has %d %s devices\n", address, len(info.Devices), info.Platform)

	squares := make([]float64, 16)
	for i := range squares {
		squares[i] = float64(i * i)
	}
	request := &pb.ExecuteRequest{Call: diffOver(info.Devices), Operands: []*pb.Operand{operand(squares)}}
	answer, err := pb.NewKernelServiceClient(connection).Execute(ctx, request)
	if err != nil {
		return err
	}
	differences := values(answer.Results[0])
	fmt.Printf("diff by the strategy %s: %v\n", answer.Plan.Strategy, differences)
	for i, difference := range differences {
		if difference != float64(2*i+1) {
			return errors.New("the result is wrong")
		}
	}
	fmt.Println("the result is right")
	return nil
}

// diffOver returns a call of diff along the first axis, which is sharded over all devices.
func diffOver(devices []*pb.Device) *pb.KernelCall {
	ids := make([]int64, len(devices))
	for i, device := range devices {
		ids[i] = device.Id
	}
	return &pb.KernelCall{
		Kernel:     "diff",
		Parameters: map[string]*pb.ParameterValue{"axis": {Kind: &pb.ParameterValue_IntValue{IntValue: 0}}},
		Mesh:       &pb.Mesh{Axes: []*pb.MeshAxis{{Name: "x", Size: int64(len(ids))}}, DeviceIds: ids},
		InSpecs: []*pb.OptionalPartitionSpec{
			{Spec: &pb.PartitionSpec{Entries: []*pb.PartitionSpecEntry{{AxisNames: []string{"x"}}}}},
		},
	}
}

// operand returns an array of one axis. The bytes are row-major and little-endian.
func operand(values []float64) *pb.Operand {
	data := make([]byte, 8*len(values))
	for i, value := range values {
		binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(value))
	}
	return &pb.Operand{
		Type:   &pb.ArrayType{ElementType: pb.ElementType_ELEMENT_TYPE_FLOAT64, Shape: []int64{int64(len(values))}},
		Source: &pb.Operand_Inline{Inline: &pb.InlineTensor{Data: data}},
	}
}

func values(result *pb.Result) []float64 {
	data := result.GetInline().Data
	values := make([]float64, len(data)/8)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return values
}

func transportSecurity(authority string) (grpc.DialOption, error) {
	if authority == "" {
		return grpc.WithInsecure(), nil
	}
	pem := []byte(authority)
	if !strings.HasPrefix(strings.TrimSpace(authority), "-----BEGIN ") {
		var err error
		if pem, err = os.ReadFile(authority); err != nil {
			return nil, err
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("SHARDCALL_CA_CERTIFICATE is no PEM file with a certificate")
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})), nil
}
