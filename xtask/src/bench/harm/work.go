// The same as work.c, in Go: four workers, each on a thread of its own, so that its CPU time can be read.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	workers   = 4
	slot      = 8
	timed     = 300
	inCommon  = 20
	threadCPU = 3
)

var (
	page   *[512]uint64
	own    [workers]sync.Mutex
	common sync.Mutex
	sunk   [workers]uint64
)

func cpuNs() uint64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&t)), 0)
	return uint64(t.Nano())
}

//go:noinline
func spin(worker, iterations int) {
	for i := 0; i < iterations; i++ {
		sunk[worker] += uint64(i)
	}
}

func work(worker int) {
	runtime.LockOSThread()
	mine := page[slot*(1+worker):]
	for {
		begin := cpuNs()
		for i := 0; i < timed; i++ {
			own[worker].Lock()
			spin(worker, 50)
			own[worker].Unlock()
		}
		atomic.AddUint64(&mine[2], cpuNs()-begin)
		atomic.AddUint64(&mine[1], timed)
		for i := 0; i < inCommon; i++ {
			common.Lock()
			spin(worker, 2000)
			common.Unlock()
		}
		atomic.AddUint64(&mine[0], timed+inCommon)
		time.Sleep(15 * time.Millisecond)
	}
}

func main() {
	file, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	bytes, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	page = (*[512]uint64)(unsafe.Pointer(&bytes[0]))
	for i := 0; i < workers; i++ {
		go work(i)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}
