// Goroutines that contend for a mutex and a read-write lock a known number of times: whoever is to wait begins to while the
// lock is surely held, and it is given back only when all of them wait (the locks themselves say how many do).
//
// Usage: go_locks ROUNDS. Speaks the protocol that truth.h describes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

const waiters = 8

type store struct {
	mu    sync.Mutex
	table sync.RWMutex
	n     int
}

var shared store

//go:noinline
func (s *store) update() {
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
}

//go:noinline
func (s *store) read() int {
	s.table.RLock()
	defer s.table.RUnlock()
	return s.n
}

//go:noinline
func (s *store) write() {
	s.table.Lock()
	s.n++
	s.table.Unlock()
}

// What a mutex says of itself: the number of its waiters above three flags.
func mutexWaiters(m *sync.Mutex) int32 {
	return atomic.LoadInt32((*int32)(unsafe.Pointer(m))) >> 3
}

// What a read-write lock says of its readers: less than zero while a writer has announced itself.
func readers(rw *sync.RWMutex) int32 {
	return atomic.LoadInt32((*int32)(unsafe.Add(unsafe.Pointer(rw), 16)))
}

// Whether a writer waits for one reader. That it has announced itself does not say so yet: the reader may leave in between.
func writerWaits(rw *sync.RWMutex) bool {
	return atomic.LoadInt32((*int32)(unsafe.Add(unsafe.Pointer(rw), 20))) == 1
}

func until(done func() bool) {
	for !done() {
		time.Sleep(20 * time.Microsecond)
	}
}

// Starts n goroutines, waits until they wait, and gives the lock back.
func behind(n int, work func(), waiting func() bool, release func()) {
	var all sync.WaitGroup
	all.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			defer all.Done()
			work()
		}()
	}
	until(waiting)
	release()
	all.Wait()
}

func round() {
	s := &shared
	s.mu.Lock()
	behind(waiters, s.update, func() bool { return mutexWaiters(&s.mu) == waiters }, s.mu.Unlock)
	// Readers behind a writer.
	s.table.Lock()
	behind(waiters, func() { s.read() }, func() bool { return readers(&s.table) == waiters-(1<<30) }, s.table.Unlock)
	// A writer behind a reader.
	s.table.RLock()
	behind(1, s.write, func() bool { return writerWaits(&s.table) }, s.table.RUnlock)
	// Writers behind a reader: the first waits for the reader, the others for each other.
	s.table.RLock()
	both := func() bool {
		return writerWaits(&s.table) && mutexWaiters((*sync.Mutex)(unsafe.Pointer(&s.table))) == 2
	}
	behind(3, s.write, both, s.table.RUnlock)
	// A writer behind another one, and then behind a reader that came in between: two waits, one acquisition.
	s.table.Lock()
	var all sync.WaitGroup
	all.Add(2)
	go func() { s.write(); all.Done() }()
	until(func() bool { return mutexWaiters((*sync.Mutex)(unsafe.Pointer(&s.table))) == 1 })
	inside := make(chan bool)
	go func() {
		s.table.RLock()
		inside <- true
		until(func() bool { return writerWaits(&s.table) })
		s.table.RUnlock()
		all.Done()
	}()
	until(func() bool { return readers(&s.table) == 1-(1<<30) })
	s.table.Unlock()
	<-inside
	all.Wait()
	// Free locks: seen by nobody.
	for i := 0; i < 100; i++ {
		s.update()
		s.read()
		s.write()
	}
}

// Waits that Go's own profile of blocking counted, by the function that waited.
func blocked(function string) (count int64) {
	records := make([]runtime.BlockProfileRecord, 4096)
	n, _ := runtime.BlockProfile(records)
	for _, record := range records[:n] {
		frames := runtime.CallersFrames(record.Stack())
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if strings.HasSuffix(frame.Function, function) {
				count += record.Count
				break
			}
		}
	}
	return
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
	runtime.SetBlockProfileRate(1)
	for i := 0; i < rounds; i++ {
		round()
	}
	facts := map[string]int64{
		"update":         int64(rounds * waiters),
		"read":           int64(rounds * waiters),
		"read_between":   int64(rounds),
		"write":          int64(rounds * 5),
		"profile_update": blocked("(*store).update"),
		"profile_read":   blocked("(*store).read"),
		"profile_write":  blocked("(*store).write"),
	}
	truth := map[string]any{
		"pid": os.Getpid(), "locks": []int{}, "threads": []int{}, "facts": facts,
	}
	line, err := json.Marshal(truth)
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"workload\":\"go_locks\",%s\n", line[1:])
}
