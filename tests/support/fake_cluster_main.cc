// SPDX-License-Identifier: Apache-2.0
// A coordinator with played replicas, for trying clients by hand or from scripts:
// fake_cluster [REPLICAS]. Prints its addresses; ends with its standard input.
#include <cstdio>
#include <cstdlib>

#include "coordinator/server.h"
#include "tests/support/fake_replica.h"
#include "tests/support/fake_tokenizer.h"

int main(int argc, char** argv) {
  using namespace cohort;  // NOLINT: a small program
  auto model = std::make_shared<ServedModel>();
  model->name = "fake";
  model->max_context = 1024;
  model->tokenizer = std::make_shared<FakeTokenizer>();
  auto parsed =
      ChatTemplate::parse("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  if (parsed.ok()) model->chat_template = *std::move(parsed);
  auto server = Server::start(model, {}, [](const std::string& line) { std::puts(line.c_str()); });
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().to_string().c_str());
    return 1;
  }
  std::vector<std::unique_ptr<FakeReplica>> replicas;
  for (int i = 0; i < (argc > 1 ? std::atoi(argv[1]) : 2); ++i) {
    FakeReplicaOptions options;
    options.name = "replica-" + std::to_string(i);
    replicas.push_back(std::make_unique<FakeReplica>((*server)->session_port(), options));
  }
  std::printf("listening http=127.0.0.1:%d grpc=127.0.0.1:%d\n", (*server)->http_port(),
              (*server)->grpc_port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
