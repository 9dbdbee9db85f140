// parks: goroutines that sleep, so that threads of the runtime park.
package main

import (
	"fmt"
	"sync"
	"time"
)

func main() {
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			time.Sleep(50 * time.Millisecond)
			group.Done()
		}()
	}
	group.Wait()
	fmt.Println("done")
}
