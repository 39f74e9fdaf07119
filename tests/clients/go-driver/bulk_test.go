// The Go driver's Client.BulkWrite against a running server (KAURI_URI): the command bulkWrite, whose operations name
// their collections one by one. Each test has databases of its own, dropped at its end.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var ctx = context.Background()

type scratch struct {
	*testing.T
	client *mongo.Client
}

// A database of the test's own.
func (s scratch) database(n int) string {
	return fmt.Sprintf("go_%s_%d", strings.ReplaceAll(s.Name(), "/", "_"), n)
}

func begin(t *testing.T) scratch {
	uri := os.Getenv("KAURI_URI")
	if uri == "" {
		t.Fatal("KAURI_URI is set by the script that runs this")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	s := scratch{t, client}
	drop := func() {
		for n := range 2 {
			if err := client.Database(s.database(n)).Drop(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	drop()
	t.Cleanup(func() {
		drop()
		_ = client.Disconnect(ctx)
	})
	return s
}

// An operation on the collection of this name in one of the two databases.
func (s scratch) at(database int, collection string, model mongo.ClientWriteModel) mongo.ClientBulkWrite {
	return mongo.ClientBulkWrite{Database: s.database(database), Collection: collection, Model: model}
}

func (s scratch) insert(database int, collection string, document bson.D) mongo.ClientBulkWrite {
	return s.at(database, collection, mongo.NewClientInsertOneModel().SetDocument(document))
}

func (s scratch) set(database int, collection string, id any, update bson.D) mongo.ClientBulkWrite {
	model := mongo.NewClientUpdateOneModel().SetFilter(bson.D{{"_id", id}}).SetUpdate(update)
	return s.at(database, collection, model)
}

func (s scratch) count(database int, collection string) int64 {
	s.Helper()
	count, err := s.client.Database(s.database(database)).Collection(collection).CountDocuments(ctx, bson.D{})
	if err != nil {
		s.Fatal(err)
	}
	return count
}

func (s scratch) run(
	writes []mongo.ClientBulkWrite, opts ...options.Lister[options.ClientBulkWriteOptions],
) *mongo.ClientBulkWriteResult {
	s.Helper()
	result, err := s.client.BulkWrite(ctx, writes, opts...)
	if err != nil {
		s.Fatal(err)
	}
	return result
}

// The errors' codes by their places, and what had succeeded.
func (s scratch) fail(
	writes []mongo.ClientBulkWrite, opts ...options.Lister[options.ClientBulkWriteOptions],
) (map[int]int, mongo.ClientBulkWriteException) {
	s.Helper()
	_, err := s.client.BulkWrite(ctx, writes, opts...)
	var bulk mongo.ClientBulkWriteException
	if !errors.As(err, &bulk) {
		s.Fatalf("no error of a bulk: %v", err)
	}
	codes := map[int]int{}
	for at, one := range bulk.WriteErrors {
		codes[at] = one.Code
	}
	return codes, bulk
}

func (s scratch) equal(what string, got, want any) {
	s.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("%s: %v, not %v", what, got, want)
	}
}

func counts(result *mongo.ClientBulkWriteResult) [5]int64 {
	return [5]int64{
		result.InsertedCount, result.MatchedCount, result.ModifiedCount, result.UpsertedCount, result.DeletedCount,
	}
}

func ordered(is bool) *options.ClientBulkWriteOptionsBuilder {
	return options.ClientBulkWrite().SetOrdered(is)
}

// One operation of each kind, in two databases.
func everyKind(s scratch) []mongo.ClientBulkWrite {
	greater := func(n int) bson.D { return bson.D{{"n", bson.D{{"$gte", n}}}} }
	return []mongo.ClientBulkWrite{
		s.insert(0, "a", bson.D{{"_id", 0}, {"n", 0}}),
		s.insert(0, "a", bson.D{{"_id", 1}, {"n", 1}}),
		s.insert(0, "a", bson.D{{"_id", 2}, {"n", 2}}),
		s.at(1, "b", mongo.NewClientUpdateOneModel().SetFilter(bson.D{{"_id", "new"}}).
			SetUpdate(bson.D{{"$set", bson.D{{"n", 7}}}}).SetUpsert(true)),
		s.at(0, "a", mongo.NewClientUpdateManyModel().SetFilter(greater(1)).
			SetUpdate(bson.D{{"$inc", bson.D{{"n", 10}}}})),
		s.at(0, "a", mongo.NewClientReplaceOneModel().SetFilter(bson.D{{"_id", 9}}).
			SetReplacement(bson.D{{"whole", true}}).SetUpsert(true)),
		s.set(0, "a", 0, bson.D{{"$set", bson.D{{"n", 0}}}}),
		s.at(1, "b", mongo.NewClientDeleteOneModel().SetFilter(bson.D{{"_id", "new"}})),
		s.at(0, "a", mongo.NewClientDeleteManyModel().SetFilter(greater(11))),
	}
}

func TestEveryKind(t *testing.T) {
	for _, is := range []bool{true, false} {
		t.Run(fmt.Sprintf("ordered_%v", is), func(t *testing.T) {
			s := begin(t)
			result := s.run(everyKind(s), ordered(is).SetVerboseResults(true).SetComment("all of them"))
			s.equal("counts", counts(result), [5]int64{3, 3, 2, 2, 3})
			s.equal("verbose", result.HasVerboseResults, true)
			for id := range 3 {
				s.equal("inserted", result.InsertResults[id].InsertedID, id)
			}
			s.equal("inserts", len(result.InsertResults), 3)
			s.equal("updates", len(result.UpdateResults), 4)
			s.equal("upserted", result.UpdateResults[3].UpsertedID, "new")
			s.equal("upserted", result.UpdateResults[5].UpsertedID, 9)
			many, same := result.UpdateResults[4], result.UpdateResults[6]
			s.equal("many", []any{many.MatchedCount, many.ModifiedCount, many.UpsertedID}, []any{2, 2, nil})
			s.equal("same", []any{same.MatchedCount, same.ModifiedCount, same.UpsertedID}, []any{1, 0, nil})
			deleted := map[int]int64{}
			for at, one := range result.DeleteResults {
				deleted[at] = one.DeletedCount
			}
			s.equal("deleted", deleted, map[int]int64{7: 1, 8: 2})
			s.equal("left", []int64{s.count(0, "a"), s.count(1, "b")}, []int64{2, 0})
		})
	}
}

func TestCountsOnly(t *testing.T) {
	s := begin(t)
	result := s.run(everyKind(s))
	s.equal("counts", counts(result), [5]int64{3, 3, 2, 2, 3})
	s.equal("results", []any{result.HasVerboseResults, len(result.InsertResults)}, []any{false, 0})
}

func TestOrderedEndsAtTheFirstError(t *testing.T) {
	s := begin(t)
	writes := []mongo.ClientBulkWrite{
		s.insert(0, "a", bson.D{{"_id", 1}, {"n", "text"}}),
		s.insert(1, "b", bson.D{{"_id", 1}}),
		s.insert(1, "b", bson.D{{"_id", 1}}),
		s.set(0, "a", 1, bson.D{{"$inc", bson.D{{"n", 1}}}}),
		s.insert(0, "a", bson.D{{"_id", 2}}),
	}
	codes, bulk := s.fail(writes, options.ClientBulkWrite().SetVerboseResults(true))
	s.equal("codes", codes, map[int]int{2: 11000})
	if message := bulk.WriteErrors[2].Message; !strings.HasPrefix(message, "E11000 duplicate key error") {
		t.Fatal(message)
	}
	s.equal("done", counts(bulk.PartialResult), [5]int64{2, 0, 0, 0, 0})
	s.equal("results", len(bulk.PartialResult.InsertResults), 2)
	s.equal("left", []int64{s.count(0, "a"), s.count(1, "b")}, []int64{1, 1})
}

func TestUnorderedTellsEveryError(t *testing.T) {
	s := begin(t)
	writes := []mongo.ClientBulkWrite{
		s.insert(0, "a", bson.D{{"_id", 1}, {"n", "text"}}),
		s.insert(0, "a", bson.D{{"_id", 1}}),
		s.insert(1, "b", bson.D{{"_id", 1}}),
		s.set(0, "a", 1, bson.D{{"$inc", bson.D{{"n", 1}}}}),
		s.insert(1, "b", bson.D{{"_id", 1}}),
		s.set(0, "a", 1, bson.D{{"$set", bson.D{{"_id", 2}}}}),
		s.insert(1, "b", bson.D{{"_id", 2}}),
	}
	codes, bulk := s.fail(writes, ordered(false))
	if !maps.Equal(codes, map[int]int{1: 11000, 3: 14, 4: 11000, 5: 66}) {
		t.Fatal(codes)
	}
	s.equal("done", counts(bulk.PartialResult), [5]int64{3, 0, 0, 0, 0})
	s.equal("left", []int64{s.count(0, "a"), s.count(1, "b")}, []int64{1, 2})
}

func TestOptions(t *testing.T) {
	s := begin(t)
	update := mongo.NewClientUpdateOneModel
	wanted := bson.D{{"$expr", bson.D{{"$eq", bson.A{"$_id", "$$wanted"}}}}}
	writes := []mongo.ClientBulkWrite{
		s.insert(0, "a", bson.D{{"_id", 1}, {"list", bson.A{1, 6, 9}}}),
		s.insert(0, "a", bson.D{{"_id", 2}}),
		s.insert(0, "a", bson.D{{"_id", 3}}),
		s.at(0, "a", update().SetFilter(bson.D{{"_id", 1}}).SetUpdate(bson.D{{"$set", bson.D{{"list.$[big]", 0}}}}).
			SetArrayFilters([]any{bson.D{{"big", bson.D{{"$gt", 5}}}}}).SetHint(bson.D{{"_id", 1}})),
		s.at(0, "a", update().SetFilter(bson.D{}).SetUpdate(bson.D{{"$set", bson.D{{"last", true}}}}).
			SetSort(bson.D{{"_id", -1}})),
		s.at(0, "a", mongo.NewClientUpdateManyModel().SetFilter(wanted).
			SetUpdate(mongo.Pipeline{{{"$set", bson.D{{"given", "$$wanted"}}}}})),
	}
	result := s.run(writes, options.ClientBulkWrite().SetLet(bson.D{{"wanted", 2}}))
	s.equal("counts", counts(result), [5]int64{3, 3, 3, 0, 0})
	cursor, err := s.client.Database(s.database(0)).Collection("a").Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{"_id", 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var found []bson.D
	if err := cursor.All(ctx, &found); err != nil {
		t.Fatal(err)
	}
	s.equal("left", found, []bson.D{
		{{"_id", 1}, {"list", bson.A{1, 0, 0}}}, {{"_id", 2}, {"given", 2}}, {{"_id", 3}, {"last", true}},
	})
	wrong := mongo.NewClientDeleteOneModel().SetFilter(bson.D{}).SetHint("none")
	codes, _ := s.fail([]mongo.ClientBulkWrite{s.at(0, "a", wrong)})
	s.equal("codes", codes, map[int]int{0: 2})
}

func TestValidator(t *testing.T) {
	s := begin(t)
	validator := options.CreateCollection().SetValidator(bson.D{{"n", bson.D{{"$gt", 0}}}})
	if err := s.client.Database(s.database(0)).CreateCollection(ctx, "a", validator); err != nil {
		t.Fatal(err)
	}
	writes := []mongo.ClientBulkWrite{s.insert(0, "a", bson.D{{"_id", 1}, {"n", -1}})}
	codes, bulk := s.fail(writes)
	s.equal("codes", codes, map[int]int{0: 121})
	if _, err := bulk.WriteErrors[0].Details.LookupErr("details"); err != nil {
		t.Fatal(err)
	}
	s.run(writes, options.ClientBulkWrite().SetBypassDocumentValidation(true))
	s.equal("left", s.count(0, "a"), 1)
}

func TestMoreOperationsThanABatch(t *testing.T) {
	const batch = 100_000
	s := begin(t)
	writes := make([]mongo.ClientBulkWrite, batch+10)
	for id := range writes {
		writes[id] = s.insert(id%2, "a", bson.D{{"_id", id}})
	}
	// The first batch's last operation, and one of the second batch.
	writes[batch-1] = s.insert(0, "a", bson.D{{"_id", 0}})
	writes[batch+5] = s.insert(0, "a", bson.D{{"_id", 0}})
	codes, bulk := s.fail(writes, ordered(false))
	s.equal("codes", codes, map[int]int{batch - 1: 11000, batch + 5: 11000})
	s.equal("done", counts(bulk.PartialResult), [5]int64{batch + 8, 0, 0, 0, 0})
	s.equal("left", s.count(0, "a")+s.count(1, "a"), batch+8)
}

func TestMoreBytesThanAMessage(t *testing.T) {
	s := begin(t)
	filler := strings.Repeat("x", 15<<20)
	var writes []mongo.ClientBulkWrite
	for id := range 4 {
		writes = append(writes, s.insert(0, "a", bson.D{{"_id", id}, {"filler", filler}}))
	}
	result := s.run(writes, options.ClientBulkWrite().SetVerboseResults(true))
	s.equal("results", []any{result.InsertedCount, len(result.InsertResults)}, []any{4, 4})
	s.equal("left", s.count(0, "a"), 4)
}

func TestResultsThatFillMoreThanAReply(t *testing.T) {
	s := begin(t)
	// The reply repeats the _id of a document that an upsert has made.
	idOf := func(n int) string { return fmt.Sprintf("%04d", n) + strings.Repeat("x", 1<<20) }
	var writes []mongo.ClientBulkWrite
	for n := range 20 {
		writes = append(writes, s.at(0, "a", mongo.NewClientUpdateOneModel().SetFilter(bson.D{{"_id", idOf(n)}}).
			SetUpdate(bson.D{{"$set", bson.D{{"n", n}}}}).SetUpsert(true)))
	}
	result := s.run(writes, options.ClientBulkWrite().SetVerboseResults(true))
	s.equal("counts", counts(result), [5]int64{0, 0, 0, 20, 0})
	for n := range 20 {
		if result.UpdateResults[n].UpsertedID != idOf(n) {
			t.Fatalf("the _id of %d", n)
		}
	}
}
