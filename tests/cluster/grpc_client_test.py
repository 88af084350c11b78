#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gRPC service with Python's grpcio: streaming, tokens, errors, cancel, health, reflection."""
import os
import subprocess
import sys
import tempfile

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cluster import ROOT, Cluster, wait_until


def generated(folder):
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", "comm/wire/inference.proto"], check=True)
    sys.path.insert(0, folder)
    from comm.wire import inference_pb2, inference_pb2_grpc
    return inference_pb2, inference_pb2_grpc


def code_of(call):
    try:
        list(call)
    except grpc.RpcError as e:
        return e.code(), e.details()
    return grpc.StatusCode.OK, ""


def check_generate(pb, stub, cluster):
    request = pb.GenerateRequest(prompt="The capital of France is",
                                 options=pb.SamplingOptions(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True))
    responses = list(stub.Generate(request, timeout=60))
    tokens = [t for r in responses for t in r.token_ids]
    assert tokens == cluster.complete("The capital of France is", temperature=0, max_tokens=8, ignore_eos=True)[0]
    assert "Paris" in "".join(r.text for r in responses)
    assert sum(len(r.logprobs) for r in responses) == 8
    assert [r.finish_reason for r in responses if r.finish_reason] == ["length"]
    assert responses[-1].usage.completion_tokens == 8


def check_errors(pb, stub):
    bad = pb.GenerateRequest(prompt="x", options=pb.SamplingOptions(temperature=-1))
    code, details = code_of(stub.Generate(bad, timeout=10))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "temperature" in details, (code, details)
    long = pb.GenerateRequest(prompt="Once", options=pb.SamplingOptions(max_tokens=2000, ignore_eos=True))
    code, _ = code_of(stub.Generate(long, timeout=0.5))
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED, code


def check_cancel(pb, stub, cluster):
    call = stub.Generate(pb.GenerateRequest(prompt="Once", options=pb.SamplingOptions(max_tokens=2000, ignore_eos=True)))
    next(call)
    call.cancel()
    cluster.wait_idle(5)


def check_tokenize(pb, stub):
    text = "Hello, 世界! 🙂"
    tokens = stub.Tokenize(pb.TokenizeRequest(text=text), timeout=10).tokens
    assert stub.Detokenize(pb.DetokenizeRequest(tokens=tokens), timeout=10).text == text
    models = stub.ListModels(pb.ListModelsRequest(), timeout=10).models
    assert len(models) == 1 and models[0].max_model_len > 0


def check_standard_services(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "cohort.v1.Inference"):
        reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING, service
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    reply = next(iter(reflection.ServerReflectionInfo(iter([
        reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10)))
    names = {s.name for s in reply.list_services_response.service}
    assert {"cohort.v1.Inference", "grpc.health.v1.Health"} <= names, names


def main():
    with tempfile.TemporaryDirectory() as folder, Cluster("--tp", 1) as cluster:
        pb, pb_grpc = generated(folder)
        with grpc.insecure_channel(cluster.grpc) as channel:
            stub = pb_grpc.InferenceStub(channel)
            check_generate(pb, stub, cluster)
            check_errors(pb, stub)
            wait_until(lambda: cluster.wait_idle(5), 6, "the expired request left the batch")
            check_cancel(pb, stub, cluster)
            check_tokenize(pb, stub)
            check_standard_services(channel)


if __name__ == "__main__":
    main()
