// SPDX-License-Identifier: Apache-2.0
// Answers as the OpenAI API words them: whole bodies, stream chunks, errors. One object per
// request, used by one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/openai_parse.h"
#include "coordinator/response_sink.h"

namespace cohort {

struct AnswerStyle {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool echo = false;
  bool logprobs = false;
  int n = 1;  // choices per prompt
};
AnswerStyle style_of(const OpenAiRequest& request);

class OpenAiAnswer {
 public:
  // id: of the answer, the same in all chunks. prompt_texts: for echo, one per prompt; or empty.
  OpenAiAnswer(AnswerStyle style, std::string id, int64_t created, std::string model);

  void set_prompts(std::vector<TokenList> prompts, std::vector<std::string> texts);
  // The payloads of the events that show this delta; none if there is nothing to show.
  std::vector<std::string> chunks(const OutputDelta& delta);
  std::string usage_chunk(const Usage& usage) const;
  // For answers in one piece: keeps the delta for body().
  void collect(OutputDelta delta);
  std::string body(const Usage& usage);

 private:
  struct Choice {
    bool begun = false;
    int64_t text_offset = 0;  // characters shown so far
    OutputDelta all;          // of answers in one piece
  };
  Choice& choice(int index);
  std::string echo_of(int index) const;

  const AnswerStyle style_;
  const std::string id_;
  const int64_t created_;
  const std::string model_;
  std::vector<TokenList> prompts_;
  std::vector<std::string> prompt_texts_;
  std::vector<Choice> choices_;
};

int http_status(const Failure& failure);
std::string error_json(const Failure& failure);
// With a status that failures do not have a code for, like 405.
std::string error_json(const Failure& failure, int status);

}  // namespace cohort
