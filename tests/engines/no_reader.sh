#!/bin/sh
# no_reader.sh ENGINE - an engine whose reader does not run here: why, and what is known of its files without it.
case $1 in
serverlessllm)
	echo "serverless-llm-store is built for CUDA alone, and reads into GPU memory; tests/oracle has the files that its writer made"
	;;
sglang)
	echo "sglang is built for GPUs alone (13 GB); tests/oracle has the tensors that its own loader wants, on a pretended one"
	;;
esac
exit 77
