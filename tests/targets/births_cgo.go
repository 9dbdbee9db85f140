// births_cgo: goroutines whose threads end with them, and threads that C code makes, until stdin is closed.
package main

/*
#include <pthread.h>
#include <stddef.h>

static void *live(void *at) { return at; }

static int make_one(void) {
	pthread_t id;
	void *result = NULL;
	return pthread_create(&id, NULL, live, &id) || pthread_join(id, &result) || result != &id;
}
*/
import "C"

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

func main() {
	var over atomic.Bool
	var made atomic.Int64
	var group sync.WaitGroup
	create := func(one func()) {
		defer group.Done()
		for !over.Load() {
			one()
			made.Add(1)
		}
	}
	group.Add(2)
	go create(func() {
		ended := make(chan bool)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			ended <- true
		}()
		<-ended
	})
	go create(func() {
		if C.make_one() != 0 {
			panic("a thread of C's is wrong")
		}
	})
	fmt.Println("ready")
	io.ReadAll(os.Stdin)
	over.Store(true)
	group.Wait()
	fmt.Println("expect made", made.Load())
}
