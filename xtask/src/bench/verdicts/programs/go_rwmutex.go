// A configuration under a sync.RWMutex, one reader of which keeps it while it waits for an answer.
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

type config struct {
	mu      sync.RWMutex
	options map[uint64]uint64
	stats   sync.Mutex
	count   uint64
	cured   bool
}

func (c *config) get(key uint64) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.options[key%100]
}

func (c *config) set(key uint64) {
	c.mu.Lock()
	c.options[key%100] = key
	c.mu.Unlock()
}

func (c *config) note() {
	c.stats.Lock()
	c.count++
	c.stats.Unlock()
}

func (c *config) export() {
	c.mu.RLock() // culprit
	size := len(c.options)
	if !c.cured {
		time.Sleep(2 * time.Millisecond)
	}
	c.mu.RUnlock() // culprit
	if c.cured {
		time.Sleep(2 * time.Millisecond)
	}
	atomic.StoreUint64(&sink, uint64(size))
}

var done [64]uint64
var sink uint64

func main() {
	c := &config{options: map[uint64]uint64{}, cured: len(os.Args) > 1 && os.Args[1] == "cured"}
	for worker := 0; worker < 3; worker++ {
		go func(worker int) {
			for key := uint64(0); ; key++ {
				x := key
				for i := 0; i < 10000; i++ {
					x = x*6364136223846793005 + 1
				}
				atomic.StoreUint64(&sink, x)
				c.note()
				c.get(x)
				if key%16 == 0 {
					c.set(x)
				}
				atomic.AddUint64(&done[worker*16], 1)
			}
		}(worker)
	}
	go func() {
		for {
			c.export()
			time.Sleep(500 * time.Microsecond)
		}
	}()
	fmt.Printf("ready lock=%p+%d\n", &c.mu, unsafe.Sizeof(c.mu))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		sum := uint64(0)
		for i := range done {
			sum += atomic.LoadUint64(&done[i])
		}
		fmt.Println(sum)
	}
}
