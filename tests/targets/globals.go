// globals: stores to variables of its package, whose names contain a point.
package main

import "fmt"

type config struct {
	Limit, Other int64
}

var Counter int64
var Config config

//go:noinline
func store(value int64) {
	Counter = value
	Config.Other = value
}

func main() {
	for i := int64(1); i <= 20; i++ {
		store(i)
	}
	fmt.Println(Counter, Config.Other)
}
