// SPDX-License-Identifier: Apache-2.0
// Parts of an OpenAI body that several endpoints share. All throw RequestError. Private to
// openai_parse.cc.
#pragma once
#include "coordinator/json_fields.h"
#include "coordinator/openai_parse.h"

namespace cohort {

SamplingOptions read_sampling(const JsonFields& fields, const ParseTarget& target);
std::vector<Prompt> read_prompts(const JsonFields& fields, const ParseTarget& target);
std::shared_ptr<const ChatInput> read_chat(const JsonFields& fields);
// Fields that we know and do not serve: refused unless they say what we do anyway.
void refuse_unsupported(const JsonFields& fields, bool chat);

}  // namespace cohort
