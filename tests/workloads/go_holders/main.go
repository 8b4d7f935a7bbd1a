// A goroutine that sleeps while it holds a mutex, and goes on in whichever thread Go's scheduler has for it.
//
// Usage: go_holders park|call ROUNDS: it sleeps in time.Sleep, which gives its thread away, or in a system call, which
// keeps the thread and loses the processor of Go's scheduler. Speaks the protocol that truth.h describes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const pause = 5 * time.Millisecond

type ledger struct {
	mu   sync.Mutex
	rows int
}

var shared ledger
var slept time.Duration
var waited int64

func sleep(how string) {
	begin := time.Now()
	if how == "park" {
		time.Sleep(pause)
	} else {
		duration := syscall.NsecToTimespec(pause.Nanoseconds())
		if err := syscall.Nanosleep(&duration, nil); err != nil && err != syscall.EINTR {
			panic(err)
		}
	}
	slept += time.Since(begin)
}

//go:noinline
func (l *ledger) audit(how string) {
	l.mu.Lock()
	l.rows++
	sleep(how)
	l.mu.Unlock()
}

//go:noinline
func (l *ledger) enter() {
	if !l.mu.TryLock() {
		begin := time.Now()
		l.mu.Lock()
		atomic.AddInt64(&waited, time.Since(begin).Nanoseconds())
	}
	l.rows++
	l.mu.Unlock()
}

func main() {
	how := os.Args[1]
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
	over := make(chan bool)
	var all sync.WaitGroup
	for i := 0; i < 3; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				select {
				case <-over:
					return
				default:
					shared.enter()
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
	}
	for i := 0; i < rounds; i++ {
		shared.audit(how)
		time.Sleep(100 * time.Microsecond)
	}
	close(over)
	all.Wait()
	facts := map[string]int64{"slept_ns": slept.Nanoseconds(), "waited_ns": waited}
	truth := map[string]any{
		"pid": os.Getpid(), "locks": []int{}, "threads": []int{}, "facts": facts,
	}
	line, err := json.Marshal(truth)
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"workload\":\"go_holders\",%s\n", line[1:])
}
