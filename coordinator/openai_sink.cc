// SPDX-License-Identifier: Apache-2.0
#include "coordinator/openai_sink.h"

#include "coordinator/http_front.h"

namespace cohort {

OpenAiSink::OpenAiSink(std::shared_ptr<HttpExchange> exchange, const OpenAiRequest& request,
                       std::string request_id, std::shared_ptr<const Tokenizer> tokenizer,
                       int64_t created, const std::string& model)
    : exchange_(std::move(exchange)),
      style_(style_of(request)),
      headers_{{"x-request-id", request_id}},
      tokenizer_(std::move(tokenizer)),
      answer_(style_, (request.chat ? "chatcmpl-" : "cmpl-") + request_id, created, model) {
  if (!request.echo) return;
  for (const Prompt& prompt : request.request.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    echo_.push_back(text ? *text : tokenizer_->decode(std::get<1>(prompt), false));
  }
}

void OpenAiSink::accepted(std::vector<TokenList> prompts) {
  exchange_->run([self = shared_from_this(), prompts = std::move(prompts)] {
    self->answer_.set_prompts(prompts, self->echo_);
  });
}

void OpenAiSink::output(OutputDelta delta) {
  exchange_->run([self = shared_from_this(), delta = std::move(delta)] {
    if (!self->style_.stream) return self->answer_.collect(delta);
    self->begin();
    for (const std::string& chunk : self->answer_.chunks(delta)) self->exchange_->event(chunk);
  });
}

void OpenAiSink::finished(const Usage& usage) {
  exchange_->run([self = shared_from_this(), usage] {
    HttpExchange& exchange = *self->exchange_;
    if (!self->style_.stream)
      return exchange.respond(200, "application/json", self->answer_.body(usage), self->headers_);
    self->begin();
    if (self->style_.include_usage) exchange.event(self->answer_.usage_chunk(usage));
    exchange.event("[DONE]");
    exchange.end_events(false);
  });
}

void OpenAiSink::failed(const Failure& failure) {
  exchange_->run([self = shared_from_this(), failure] {
    if (!self->begun_) return respond_failure(*self->exchange_, failure, self->headers_);
    self->exchange_->event(error_json(failure));
    self->exchange_->end_events(true);
  });
}

void OpenAiSink::begin() {
  if (begun_) return;
  begun_ = true;
  exchange_->start_events(headers_);
}

void OpenAiSink::quiet() {
  if (style_.stream) begin();
}

}  // namespace cohort
