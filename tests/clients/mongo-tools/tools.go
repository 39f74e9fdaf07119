//go:build tools

// Package tools keeps the programs of the MongoDB database tools among the modules that go.mod and go.sum lock.
package tools

import (
	_ "github.com/mongodb/mongo-tools/bsondump/main"
	_ "github.com/mongodb/mongo-tools/mongodump/main"
	_ "github.com/mongodb/mongo-tools/mongoexport/main"
	_ "github.com/mongodb/mongo-tools/mongofiles/main"
	_ "github.com/mongodb/mongo-tools/mongoimport/main"
	_ "github.com/mongodb/mongo-tools/mongorestore/main"
	_ "github.com/mongodb/mongo-tools/mongostat/main"
	_ "github.com/mongodb/mongo-tools/mongotop/main"
)
