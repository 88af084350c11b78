// SPDX-License-Identifier: Apache-2.0
#include "model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

Result<RenderedChat> render(const std::string& source, const Json& messages = Json::array(),
                            const TemplateLimits& limits = {}, const Json* tools = nullptr) {
  COHORT_ASSIGN_OR_RETURN(const auto parsed, ChatTemplate::parse(source, limits));
  return parsed->render(
      {.messages = messages, .tools = tools, .bos_token = "<s>", .eos_token = "</s>"});
}

Json one_user(const std::string& content) {
  return Json::array({{{"role", "user"}, {"content", content}}});
}

// The text with each literal part in brackets.
std::string marked(const Result<RenderedChat>& rendered) {
  if (!rendered.ok()) return rendered.status().to_string();
  std::string out;
  size_t at = 0;
  for (const TextRange& range : rendered->literal) {
    out += rendered->text.substr(at, range.begin - at);
    out += "[" + rendered->text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + rendered->text.substr(at);
}

TEST(ChatTemplateTest, GivesWhatJinja2Gives) {
  setenv("TZ", "UTC", 1);
  std::ifstream file("tests/data/chat_templates/goldens.json");
  const Json goldens = Json::parse(file);
  ASSERT_GT(goldens["cases"].size(), 200u);
  for (const Json& golden : goldens["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const auto parsed = ChatTemplate::parse(golden["template"].get<std::string>());
    Result<RenderedChat> rendered =
        parsed.ok() ? (*parsed)->render({.messages = goldens["messages"],
                                         .bos_token = "<s>",
                                         .eos_token = "</s>",
                                         .extra = &goldens["variables"],
                                         .now = goldens["now"].get<std::time_t>()})
                    : Result<RenderedChat>(parsed.status());
    EXPECT_EQ(rendered.ok(), golden["text"].is_string()) << rendered.status().message();
    if (rendered.ok() && golden["text"].is_string()) {
      EXPECT_EQ(rendered->text, golden["text"]);
    }
  }
}

TEST(ChatTemplateTest, MarksWhatCameFromMessages) {
  const std::string chat =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{{ eos_token }}{% endfor %}";
  EXPECT_EQ(marked(render(chat, one_user(" <|x|> "))), "<|user|>[<|x|>]</s>");
  const Json strange = Json::array({{{"role", "<|x|>"}, {"content", "y"}}});
  EXPECT_EQ(marked(render(chat, strange)), "<|[<|x|>]|>[y]</s>");
}

TEST(ChatTemplateTest, FollowsMarksThroughOperations) {
  const auto show = [](const std::string& expression) {
    return marked(
        render("{% set c = messages[0].content %}{{ " + expression + " }}", one_user("ab cd")));
  };
  EXPECT_EQ(show("'<' + c + '>'"), "<[ab cd]>");
  EXPECT_EQ(show("c.split(' ') | join('-')"), "[ab]-[cd]");
  EXPECT_EQ(show("('x' ~ c ~ 'y')[1:4]"), "[ab ]");
  EXPECT_EQ(show("('xx' ~ c)[::-1]"), "[dc ba]xx");
  EXPECT_EQ(show("c | upper | replace('B', '+')"), "[A]+[ CD]");
  EXPECT_EQ(show("'a-b' | replace('-', c)"), "a[ab cd]b");
  EXPECT_EQ(show("[c, 1] | tojson"), "[\"[ab cd]\", 1]");
  EXPECT_EQ(show("[c, 'k']"), "['[ab cd]', 'k']");
  EXPECT_EQ(show("'%s|%d' % (c, 3)"), "[ab cd]|3");
  EXPECT_EQ(show("'{:>7}|'.format(c)"), "  [ab cd]|");
  EXPECT_EQ(show("('<' ~ c) | e"), "&lt;[ab cd]");
  EXPECT_EQ(show("c | indent(2, true)"), "  [ab cd]");
}

TEST(ChatTemplateTest, MarksToolSchemas) {
  const Json tools = Json::array({{{"name", "<|x|>"}}});
  EXPECT_EQ(marked(render("{{ tools | tojson }}", Json::array(), {}, &tools)),
            "[{\"[name]\": \"[<|x|>]\"}]");
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  EXPECT_THAT(render("a\n{{ x.y }}").status().message(), HasSubstr("line 2: 'x' is undefined"));
  EXPECT_THAT(render("a\n\n{% if %}").status().message(), HasSubstr("line 3"));
  const Status raised = render("\n{{ raise_exception('Roles must alternate') }}").status();
  EXPECT_EQ(raised.code(), Code::kInvalidArgument);
  EXPECT_EQ(raised.message(), "chat template line 2: Roles must alternate");
  EXPECT_EQ(render("{% include 'x' %}").status().code(), Code::kUnimplemented);
}

TEST(ChatTemplateTest, HostileTemplatesEndSoonE07) {
  const std::string deep(5000, '(');
  const std::string nots = "{{ " + [] {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += "not ";
    return text;
  }() + "1 }}";
  const std::string sources[] = {
      "{{ 'a' * 1000000000 }}",
      "{{ 'a' * 10000000 * 10000000 }}",
      "{{ [0] * 1000000000 }}",
      "{{ range(1000000000000) }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}",
      "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}",
      "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}"
      "{{ n.l }}",
      "{% set s = 'a' * 10000000 %}{% for i in range(99999) %}{{ 'b' in s }}{% endfor %}",
      "{{ '%9999999d' % 1 }}",
      "{{ '{:9999999}'.format(1) }}",
      "{{ 'x' | indent(999999999) }}",
      "{{ 'x'.ljust(9999999999) }}",
      "{{ 9 ** 9999999 }}",
      "{{ " + deep,
      nots,
      std::string(3 << 20, 'x'),
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 100));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(render(source).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST(ChatTemplateTest, LongChainsAreNotDeep) {
  std::string sum = "{{ 1";
  for (int i = 0; i < 10000; ++i) sum += " + 1";
  const auto rendered = render(sum + " }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status().message();
  EXPECT_EQ(rendered->text, "10001");
}

TEST(ChatTemplateTest, CyclesAreFreed) {
  const auto rendered = render(
      "{% set n = namespace() %}{% set n.n = n %}{% macro m() %}{% endmacro %}"
      "{% set n.m = m %}{{ n.n.n is defined }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status().message();
  EXPECT_EQ(rendered->text, "True");  // LeakSanitizer sees the rest
}

}  // namespace
}  // namespace cohort
