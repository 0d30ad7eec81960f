GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s
HISTORIES ?= 10000
DURATION ?= 30m
REPORT ?= soak-report.txt

.PHONY: help test lint integration guarantees soak bench plans fuzz model dist

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: ## all tests, with the race detector
	go test -race ./...

lint: ## format, imports and the usual mistakes; the fix is often: make lint ARGS=--fix
	$(GOLANGCI_LINT) run $(ARGS) ./...

integration: ## the built programs under kill -9, and the guarantees
	POINTSMAN_TEST_GUARANTEES=1 go test -count=1 -v ./integration/...

guarantees: ## a test for each guarantee, on programs that are killed, paused and cut off, and whole clusters: seven minutes
	POINTSMAN_TEST_GUARANTEES=1 go test -count=1 -timeout 30m -v ./integration/cluster ./integration/guarantees

soak: ## everything under a nemesis for DURATION; BACKEND=containers has it in containers. The report is written to REPORT
	POINTSMAN_TEST_GUARANTEES=1 POINTSMAN_SOAK=$(DURATION) POINTSMAN_SOAK_BACKEND=$(BACKEND) POINTSMAN_SOAK_REPORT=$(abspath $(REPORT)) \
		go test -count=1 -timeout 24h -run '^TestSoak$$' -v ./integration/guarantees

bench: ## Go benchmarks, once each: that they run, not how fast
	go test -run '^$$' -bench . -benchtime 1x ./...

plans: ## what each statement touches, as a table, beside a million instances: some minutes
	POINTSMAN_PLANS=1 go test -count=1 -timeout 1h -run '^TestBuffers$$' -v ./internal/store

fuzz: ## each fuzz target for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$target in $$(dirname "$$file")"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

model: ## HISTORIES random histories of the engine against its model
	go test ./engine -run '^TestModel$$' -rapid.checks $(HISTORIES) -rapid.nofailfile -timeout 4h -v

dist: ## static programs in dist/, and the certificates of this machine: what deploy/Dockerfile --target prebuilt takes
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $(if $(VERSION),-X github.com/pointsman/pointsman/internal/app.stamp=$(VERSION))" -o dist/ ./cmd/pointsman ./cmd/bridge ./cmd/worker
	cp /etc/ssl/certs/ca-certificates.crt dist/
