// A store whose log is synced while its sync.Mutex is held.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

type store struct {
	mu    sync.Mutex
	rows  map[uint64]uint64
	stats sync.Mutex
	count uint64
	log   *os.File
	cured bool
}

func (s *store) put(key uint64) {
	s.mu.Lock()
	s.rows[key%1000]++
	s.mu.Unlock()
}

func (s *store) note() {
	s.stats.Lock()
	s.count++
	s.stats.Unlock()
}

func (s *store) compact() {
	s.mu.Lock() // culprit
	if !s.cured {
		s.sync()
	}
	for key := range s.rows {
		delete(s.rows, key)
	}
	s.mu.Unlock() // culprit
	if s.cured {
		s.sync()
	}
}

func (s *store) sync() {
	for i := 0; i < 16; i++ {
		s.log.Write(make([]byte, 4096))
		s.log.Sync()
	}
}

var done [64]uint64
var sink uint64

func main() {
	log, err := os.CreateTemp("", "verdict-*")
	if err != nil {
		panic(err)
	}
	os.Remove(log.Name())
	s := &store{rows: map[uint64]uint64{}, log: log, cured: len(os.Args) > 1 && os.Args[1] == "cured"}
	for worker := 0; worker < 3; worker++ {
		go func(worker int) {
			for key := uint64(0); ; key++ {
				x := key
				for i := 0; i < 10000; i++ {
					x = x*6364136223846793005 + 1
				}
				atomic.StoreUint64(&sink, x)
				s.note()
				s.put(x)
				atomic.AddUint64(&done[worker*16], 1)
			}
		}(worker)
	}
	go func() {
		for {
			s.compact()
			time.Sleep(200 * time.Microsecond)
		}
	}()
	fmt.Printf("ready lock=%p+%d\n", &s.mu, unsafe.Sizeof(s.mu))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		sum := uint64(0)
		for i := range done {
			sum += atomic.LoadUint64(&done[i])
		}
		fmt.Println(sum)
	}
}
