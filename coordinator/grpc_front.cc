// SPDX-License-Identifier: Apache-2.0
#include "coordinator/grpc_front.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <deque>
#include <mutex>

#include "comm/wire/inference.grpc.pb.h"
#include "coordinator/grpc_convert.h"

namespace cohort {
namespace {

constexpr int kMaxMessageBytes = 32 << 20;
constexpr size_t kMostQueued = 100'000;  // responses that a slow client has not taken
constexpr const char* kServiceName = "cohort.v1.Inference";

grpc::Status status_of(const Failure& failure) {
  return {static_cast<grpc::StatusCode>(failure.code), failure.message};
}

// The answer to one call. gRPC owns the call until OnDone; the sink, which the core holds, may
// live longer or shorter, so both share this.
class Answer : public ResponseSink {
 public:
  Answer(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  void accepted(std::vector<TokenList>) override {}
  void output(OutputDelta delta) override {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    // The last one waits for the usage that goes with it.
    if (pending_) push(std::move(*pending_));
    pending_ = to_wire(delta);
    pending_->set_id(id_);
    pending_->set_model(model_);
    if (!delta.finish) push(*std::exchange(pending_, {}));
  }
  void finished(const Usage& usage) override {
    const std::lock_guard lock(mutex_);
    if (pending_) {
      fill(usage, *pending_->mutable_usage());
      push(*std::exchange(pending_, {}));
    }
    end(grpc::Status::OK);
  }
  void failed(const Failure& failure) override {
    const std::lock_guard lock(mutex_);
    end(status_of(failure));
  }

  // The call's side.
  void attach(grpc::ServerWriteReactor<v1::GenerateResponse>* call) {
    const std::lock_guard lock(mutex_);
    call_ = call;
    advance();
  }
  void written(bool ok) {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) queue_.clear();
    if (!ok) end(grpc::Status::CANCELLED);
    advance();
  }
  void client_left() {
    const std::lock_guard lock(mutex_);
    queue_.clear();
    end(grpc::Status::CANCELLED);
  }

 private:
  void push(v1::GenerateResponse response) {
    if (queue_.size() >= kMostQueued) {
      queue_.clear();
      return end({grpc::StatusCode::RESOURCE_EXHAUSTED, "the client reads too slowly"});
    }
    queue_.push_back(std::move(response));
    advance();
  }
  void end(const grpc::Status& status) {
    if (ended_) return;
    ended_ = status;
    advance();
  }
  // Starts the next write, or finishes the call after the last one.
  void advance() {
    if (!call_ || writing_) return;
    if (!queue_.empty()) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      call_->StartWrite(&current_);
    } else if (ended_) {
      std::exchange(call_, nullptr)->Finish(*ended_);
    }
  }

  const std::string id_, model_;
  std::mutex mutex_;
  grpc::ServerWriteReactor<v1::GenerateResponse>* call_ = nullptr;  // all guarded by mutex_
  std::deque<v1::GenerateResponse> queue_;
  std::optional<v1::GenerateResponse> pending_;
  v1::GenerateResponse current_;
  bool writing_ = false;
  std::optional<grpc::Status> ended_;
};

class GenerateCall : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  GenerateCall(RequestService& service, uint64_t number, grpc::CallbackServerContext& call,
               const v1::GenerateRequest& wire)
      : service_(service) {
    answer_ = std::make_shared<Answer>(concat("gen-", number), service.model().name);
    auto request =
        from_wire(wire, service.options().request, service.model().tokenizer->vocab_size());
    if (const auto* failure = std::get_if<Failure>(&request)) {
      answer_->failed(*failure);
    } else {
      auto& valid = std::get<GenerateRequest>(request);
      const auto left = call.deadline() - std::chrono::system_clock::now();
      if (left < std::chrono::hours(24 * 365)) valid.timeout = left;
      id_ = service.submit(std::move(valid), answer_);
    }
    answer_->attach(this);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) cancel();
    answer_->written(ok);
  }
  void OnCancel() override {
    cancel();
    answer_->client_left();
  }
  void OnDone() override { delete this; }

 private:
  void cancel() {
    if (id_) service_.cancel(*id_);
  }
  RequestService& service_;
  std::shared_ptr<Answer> answer_;
  std::optional<uint64_t> id_;
};

class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(RequestService& service) : service_(service) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* call, const v1::GenerateRequest* request) override {
    return new GenerateCall(service_, next_call_.fetch_add(1), *call,
                            *request);  // deletes itself in OnDone
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* call,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    auto* reactor = call->DefaultReactor();
    const bool special = !request->has_add_special_tokens() || request->add_special_tokens();
    const bool posted = service_.offload([this, reactor, request, response, special] {
      const auto ids = service_.model().tokenizer->encode(request->text(), {true, special});
      response->mutable_tokens()->Assign(ids.begin(), ids.end());
      response->set_max_model_len(service_.max_context());
      reactor->Finish(grpc::Status::OK);
    });
    if (!posted) reactor->Finish({grpc::StatusCode::UNAVAILABLE, "too many requests"});
    return reactor;
  }

  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* call,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    auto* reactor = call->DefaultReactor();
    const std::vector<TokenId> ids(request->tokens().begin(), request->tokens().end());
    response->set_text(service_.model().tokenizer->decode(ids, false));
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* call,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    auto* reactor = call->DefaultReactor();
    auto* model = response->add_models();
    model->set_id(service_.model().name);
    model->set_max_model_len(service_.max_context());
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  RequestService& service_;
  std::atomic<uint64_t> next_call_{1};
};

class Front final : public GrpcFront {
 public:
  explicit Front(RequestService& service) : service_(service) {}
  ~Front() override { stop(Duration(0)); }

  Status start(const std::string& address) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      return unavailable(
          concat("cannot listen on ", address,
                 ": is it in use, or not of this machine? Choose another address with --grpc"));
    set_ready(false);
    return {};
  }

  int port() const override { return port_; }
  void set_ready(bool ready) override {
    server_->GetHealthCheckService()->SetServingStatus(kServiceName, ready);
  }
  void stop(Duration grace) override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_.reset();
  }

 private:
  InferenceService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<GrpcFront>> GrpcFront::start(const std::string& address,
                                                    RequestService& service) {
  auto front = std::make_unique<Front>(service);
  COHORT_RETURN_IF_ERROR(front->start(address));
  return std::unique_ptr<GrpcFront>(std::move(front));
}

}  // namespace cohort
