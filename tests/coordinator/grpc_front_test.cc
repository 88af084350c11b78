// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "comm/wire/inference.grpc.pb.h"
#include "tests/support/coordinator_fixture.h"

namespace cohort {
namespace {

class GrpcFrontTest : public CoordinatorTest {
 protected:
  std::unique_ptr<v1::Inference::Stub> stub() {
    return v1::Inference::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(server_->grpc_port()), grpc::InsecureChannelCredentials()));
  }
};

TEST_F(GrpcFrontTest, StreamsTheSameTextAsHttp) {
  start();
  const auto fake = replica();
  v1::GenerateRequest request;
  request.set_prompt("hello");
  request.mutable_options()->set_max_tokens(20);
  request.mutable_options()->set_logprobs(1);
  grpc::ClientContext call;
  const auto inference = stub();
  const auto stream = inference->Generate(&call, request);
  std::string text, finish;
  v1::GenerateResponse response;
  int logprobs = 0;
  while (stream->Read(&response)) {
    text += response.text();
    logprobs += response.logprobs_size();
    if (!response.finish_reason().empty()) finish = response.finish_reason();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(text, FakeReplica::letters(ids("hello"), 20));
  EXPECT_EQ(finish, "length");
  EXPECT_EQ(logprobs, 20);
  EXPECT_EQ(response.usage().completion_tokens(), 20);
}

TEST_F(GrpcFrontTest, RefusesWithAStatus) {
  start();
  const auto inference = stub();
  const auto code = [&](const v1::GenerateRequest& request) {
    grpc::ClientContext call;
    const auto stream = inference->Generate(&call, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(stream->Read(&response));
    return stream->Finish().error_code();
  };
  v1::GenerateRequest request;
  EXPECT_EQ(code(request), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_prompt("x");
  request.mutable_options()->set_temperature(-1);
  EXPECT_EQ(code(request), grpc::StatusCode::INVALID_ARGUMENT);
  request.clear_options();
  request.set_model("other");
  EXPECT_EQ(code(request), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcFrontTest, E14_E18_CancelAndDeadlineFreeThePlace) {
  start();
  FakeReplicaOptions slow;
  slow.token_interval = std::chrono::milliseconds(20);
  const auto fake = replica(slow);
  const auto inference = stub();
  v1::GenerateRequest request;
  request.set_prompt("x");
  request.mutable_options()->set_max_tokens(900);
  v1::GenerateResponse response;
  grpc::ClientContext cancelled;
  const auto stream = inference->Generate(&cancelled, request);
  ASSERT_TRUE(stream->Read(&response));
  cancelled.TryCancel();
  EXPECT_TRUE(eventually([&] { return fake->active() == 0; }));
  grpc::ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(400));
  const auto second = inference->Generate(&late, request);
  while (second->Read(&response)) {
  }
  EXPECT_EQ(second->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return fake->active() == 0; }));
  EXPECT_TRUE(eventually([&] { return server_->service().open_sequences() == 0; }));
}

TEST_F(GrpcFrontTest, TokenizesAndLists) {
  start();
  const auto inference = stub();
  grpc::ClientContext one, two, three;
  v1::TokenizeRequest text;
  text.set_text("ab");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(inference->Tokenize(&one, text, &tokens).ok());
  EXPECT_THAT(tokens.tokens(), testing::ElementsAre(FakeTokenizer::kBos, 'a', 'b'));
  v1::DetokenizeRequest back;
  back.add_tokens('h');
  v1::DetokenizeResponse decoded;
  ASSERT_TRUE(inference->Detokenize(&two, back, &decoded).ok());
  EXPECT_EQ(decoded.text(), "h");
  v1::ListModelsResponse models;
  ASSERT_TRUE(inference->ListModels(&three, {}, &models).ok());
  EXPECT_EQ(models.models(0).id(), "fake");
}

}  // namespace
}  // namespace cohort
