// Uses locks of Go's while another goroutine sleeps. Speaks as pairs.c does.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const batch = 100
const threadCPU = 3

var mutex sync.Mutex
var rwmutex sync.RWMutex

func cpuNs() int64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func main() {
	runtime.LockOSThread()
	go time.Sleep(1 << 62)
	uses := map[string]func(){
		"go_mutex": func() { mutex.Lock(); mutex.Unlock() },
		"go_read":  func() { rwmutex.RLock(); rwmutex.RUnlock() },
	}
	var what string
	var milliseconds int64
	for {
		if n, _ := fmt.Scan(&what, &milliseconds); n != 2 {
			return
		}
		use := uses[what]
		made, cpu, begin := 0, cpuNs(), time.Now()
		for time.Since(begin) < time.Duration(milliseconds)*time.Millisecond {
			for i := 0; i < batch; i++ {
				use()
			}
			made += batch
		}
		fmt.Println(made, time.Since(begin).Nanoseconds(), cpuNs()-cpu)
	}
}
