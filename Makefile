# Everything sets itself up: `make run` installs what a build needs, `make test` also what the tests
# need. See scripts/bootstrap.

SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:/usr/local/cargo/bin:$(PATH)
PORT ?= 27017
DBPATH ?= ./data

.PHONY: help run build check test docs crash shuttle seeds plants campaign lab bench bench-engine bench-guard fmt clean

help:
	@echo "make run     build and serve on 127.0.0.1:$(PORT), data in $(DBPATH)"
	@echo "make build   target/release/kauri"
	@echo "make check   format, lint, layering, pages, fast tests (a few minutes)"
	@echo "make test    everything"
	@echo "make docs    the pages as a site with search: target/docs/site/index.html"
	@echo "make crash   a hundred thousand crash states (about twenty minutes on two cores)"
	@echo "make shuttle the log's threads in many more orders (minutes; SHUTTLE_ITERATIONS, SHUTTLE_SEED)"
	@echo "make seeds   replica sets under faults, a hundred thousand seeds (hours; KAURI_SEEDS)"
	@echo "make plants  known bugs of replica sets, each planted and caught (an hour)"
	@echo "make campaign   a replica set under kills, pauses and cut links, and its failover (half an hour; CAMPAIGN_SEED)"
	@echo "make lab     persistent memory, power cuts and RDMA, in an emulated machine (minutes)"
	@echo "make bench   YCSB over three transports, and an echo server: target/bench/index.html (five minutes)"
	@echo "make bench-engine   the storage engine's figures, beside WiredTiger's (half an hour)"
	@echo "make bench-guard    whether the server has become slower since GUARD_BASE (HEAD~1; minutes)"

run: build
	@mkdir -p $(DBPATH)
	target/release/kauri serve --dbpath $(DBPATH) --port $(PORT)

build:
	scripts/bootstrap build
	cargo build --release --locked -p kauri-server

check:
	scripts/bootstrap build
	cargo fmt --all --check
	scripts/layering
	scripts/docs check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked --lib

test:
	scripts/bootstrap tools
	scripts/test

docs:
	scripts/bootstrap docs
	scripts/docs

crash:
	scripts/bootstrap build
	KAURI_CRASH=all cargo test --locked --profile crash -p kauri-storage-log --test suite \
	  -- --nocapture --test-threads=1 crash_states::

shuttle: export SHUTTLE_ITERATIONS ?= 20000
shuttle:
	scripts/bootstrap build
	cargo test --locked -p kauri-storage-log --features shuttle --test shuttle

seeds: export KAURI_SEEDS ?= 100000
seeds:
	scripts/bootstrap build
	cargo test --locked --profile crash -p kauri-member --test cluster -- --nocapture sets_keep

plants:
	scripts/bootstrap build
	scripts/plants

campaign: export CAMPAIGN_SEED ?= 1
campaign: build
	scripts/bootstrap test
	cargo build --release --locked -p kauri-consistency --examples
	tests/clients/set_campaign.sh --runs 10 --seconds 120 --recovery-seconds-max 10 --seed $$CAMPAIGN_SEED
	tests/clients/set_failover.sh --kills 100 --step-downs 20 --seed $$CAMPAIGN_SEED

lab: export LAB_LONG ?=
lab: build
	scripts/bootstrap test
	scripts/lab

bench: build
	scripts/bench

bench-engine:
	scripts/bootstrap bench
	cargo build --release --locked -p kauri-server --features wiredtiger
	scripts/bench_engine

bench-guard: export GUARD_BASE ?= HEAD~1
bench-guard:
	scripts/bootstrap guard
	scripts/guard

fmt:
	cargo fmt --all

clean:
	cargo clean
