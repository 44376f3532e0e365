// Watchers and one writer on an etcd cluster: "open" once all watch, then one line of JSON.
//
//	etcdwatch -endpoints a,b,c -watchers 2000 -n 200 -interval 100ms
//
// A callback's latency is the time from the acknowledgement of a put to the watcher's event.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	key        = "watched"
	perChannel = 50
)

func dial(endpoints []string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return c
}

func percentiles(name string, found []time.Duration, into map[string]any) {
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	at := func(share float64) float64 {
		return float64(found[int(share*float64(len(found)-1))].Nanoseconds()) / 1e6
	}
	into[name+"_n"] = len(found)
	into[name+"_p50_ms"], into[name+"_p99_ms"], into[name+"_max_ms"] = at(.5), at(.99), at(1)
}

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "comma-separated client addresses")
	watchers := flag.Int("watchers", 2000, "watchers, 50 on a connection")
	n := flag.Int("n", 200, "puts")
	interval := flag.Duration("interval", 100*time.Millisecond, "from one put to the next")
	flag.Parse()

	addresses := strings.Split(*endpoints, ",")
	times := make([][]time.Time, *watchers)
	var opened, finished sync.WaitGroup
	var clients []*clientv3.Client
	for i := 0; i < *watchers; i++ {
		if i%perChannel == 0 {
			number := len(clients) % len(addresses)
			clients = append(clients, dial(addresses[number:number+1]))
		}
		client := clients[len(clients)-1]
		opened.Add(1)
		finished.Add(1)
		go func() {
			defer finished.Done()
			events := client.Watch(context.Background(), key, clientv3.WithCreatedNotify())
			for response := range events {
				if response.Created {
					opened.Done()
					continue
				}
				now := time.Now()
				for range response.Events {
					times[i] = append(times[i], now)
				}
				if len(times[i]) >= *n {
					return
				}
			}
		}()
	}
	opened.Wait()
	fmt.Println("open")

	writer := dial(addresses)
	value := strings.Repeat("x", 248)
	acknowledged := make([]time.Time, *n)
	var took []time.Duration
	for i := range acknowledged {
		begin := time.Now()
		if _, err := writer.Put(context.Background(), key, value+strconv.Itoa(10_000_000+i)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		acknowledged[i] = time.Now()
		took = append(took, acknowledged[i].Sub(begin))
		time.Sleep(*interval - took[i])
	}
	finished.Wait()

	var latencies []time.Duration
	for _, each := range times {
		for i, at := range each[:*n] {
			latencies = append(latencies, at.Sub(acknowledged[i]))
		}
	}
	result := map[string]any{}
	percentiles("append", took, result)
	percentiles("callback", latencies, result)
	json.NewEncoder(os.Stdout).Encode(result)
}
