# Aliases for dev.py, which needs no make:  make test ARGS="tests/sdk -k retry"
.PHONY: setup demo test lint bench docs proto

setup demo test lint bench docs proto:
	@python3 dev.py $@ $(ARGS)
