// A web server whose requests contend for one mutex. `/work` takes it, `/count` tells how often that was done.
//
// Usage: go_server ADDRESS. Prints `ready` when it listens, and exits when its stdin is closed.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
)

type counter struct {
	mu      sync.Mutex
	served  int
	scratch [256]uint64
}

//go:noinline
func (c *counter) work() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < 20000; i++ {
		c.scratch[i%len(c.scratch)] += uint64(i)
	}
	c.served++
	return c.served
}

func main() {
	var c counter
	http.HandleFunc("/work", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, c.work()) })
	http.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		fmt.Fprintln(w, c.served)
	})
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	go func() { panic(http.Serve(listener, nil)) }()
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
}
