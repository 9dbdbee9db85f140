// mixed_go: a little of everything that Go programs do, after a line of stdin.
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"sort"
	"sync"
)

func deep(n int) int {
	var room [256]byte
	if n == 0 {
		return 0
	}
	room[n%256] = 1
	return deep(n-1) + int(room[n%256])
}

func recovers(n int) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	var none []int
	return fmt.Sprint(none[n])
}

func main() {
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	words := map[string]int{}
	for i := 0; i < 5000; i++ {
		words[fmt.Sprint("k", i%371)] += i
	}
	keys := []string{}
	for key := range words {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	sum := sha256.New()
	for _, key := range keys {
		fmt.Fprintln(sum, key, words[key])
	}
	digits := make([]int, 8)
	var all sync.WaitGroup
	for t := range digits {
		all.Add(1)
		go func(t int) {
			defer all.Done()
			for i := 0; i < 1000; i++ {
				digits[t] += len(fmt.Sprint(i * t))
			}
			digits[t] += deep(2000 + t)
			runtime.GC()
		}(t)
	}
	all.Wait()
	fmt.Printf("%s%x %v %s\n", line, sum.Sum(nil), digits, recovers(3))
	os.Exit(7)
}
