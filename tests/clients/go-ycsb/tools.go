//go:build tools

// Package tools keeps go-ycsb's program among the modules that go.mod and go.sum lock.
package tools

import _ "github.com/pingcap/go-ycsb/cmd/go-ycsb"
