// SPDX-License-Identifier: Apache-2.0
// Carries an answer from the core to an HTTP exchange, as one body or as server-sent events. The
// status line goes out with the first news, so that what fails before is a plain HTTP error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "coordinator/http_exchange.h"
#include "coordinator/openai_format.h"
#include "coordinator/response_sink.h"

namespace cohort {

class OpenAiSink : public ResponseSink, public std::enable_shared_from_this<OpenAiSink> {
 public:
  OpenAiSink(std::shared_ptr<HttpExchange> exchange, const OpenAiRequest& request,
             std::string request_id, std::shared_ptr<const Tokenizer> tokenizer, int64_t created,
             const std::string& model);

  // Any thread.
  void accepted(std::vector<TokenList> prompts) override;
  void output(OutputDelta delta) override;
  void finished(const Usage& usage) override;
  void failed(const Failure& failure) override;

  // On the strand: the client has waited for long. Opens the stream, so that pings keep it.
  void quiet();

 private:
  void begin();

  const std::shared_ptr<HttpExchange> exchange_;
  const AnswerStyle style_;
  const HttpHeaders headers_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> echo_;  // of prompts that came as text
  // On the strand.
  OpenAiAnswer answer_;
  bool begun_ = false;
};

}  // namespace cohort
