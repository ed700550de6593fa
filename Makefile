# Aliases for dev.py, which needs no make:  make test ARGS="tests/sdk -k retry"
.PHONY: setup demo test lint bench chaos docs proto screenshots build lock

setup demo test lint bench chaos docs proto screenshots build lock:
	@python3 dev.py $@ $(ARGS)
