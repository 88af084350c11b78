// SPDX-License-Identifier: Apache-2.0
// The HTTP server alone: limits, pipelining, slow and vanishing clients.
#include "coordinator/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/http_client.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;

class HttpServerTest : public testing::Test {
 protected:
  void start() {
    auto server = HttpServer::start("127.0.0.1:0", 2, limits_,
                                    [this](std::shared_ptr<HttpExchange> e) { serve(*e); });
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = *std::move(server);
  }
  // /echo gives the body back; /flood streams without end for as long as somebody is there.
  void serve(HttpExchange& exchange) {
    if (exchange.request().path != "/flood")
      return exchange.respond(200, "text/plain",
                              exchange.request().path + ":" + exchange.request().body);
    exchange.on_gone([this] { gone_ = true; });
    exchange.start_events();
    for (int i = 0; i < 200 && !gone_; ++i) exchange.event(std::string(100'000, 'x'));
  }
  int port() const { return server_->port(); }

  HttpLimits limits_;
  std::atomic<bool> gone_{false};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersOneAfterAnotherOnOneConnection) {
  start();
  HttpClient client(port());
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer =
        client.post("/echo", std::string(1 << static_cast<unsigned>(i * 9), 'b'));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.size(), 6 + (size_t{1} << static_cast<unsigned>(i * 9)));
  }
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  HttpClient client(port());
  client.send(
      "GET /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz"
      "GET /c HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.receive().body, "/a:");
  EXPECT_EQ(client.receive().body, "/b:xyz");
  EXPECT_EQ(client.receive().body, "/c:");
}

TEST_F(HttpServerTest, ARequestByteByByteAndChunkedIsRead) {
  start();
  HttpClient client(port());
  for (const char c : std::string("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"))
    client.send(std::string(1, c));
  EXPECT_EQ(client.receive().body, "/x:abcde");
}

TEST_F(HttpServerTest, LargeHeadersAndBodiesAreRefused) {
  limits_.body_bytes = 1000;
  start();
  HttpClient header(port());
  header.send("GET / HTTP/1.1\r\nX: " + std::string(100'000, 'h') + "\r\n\r\n");
  EXPECT_EQ(header.receive().status, 431);
  HttpClient body(port());
  body.send("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(body.receive().status, 413);
  HttpClient garbage(port());
  garbage.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(garbage.receive().status, 400);
}

TEST_F(HttpServerTest, AClientThatSendsTooSlowlyIsCut) {
  limits_.receive = milliseconds(300);
  start();
  HttpClient client(port());
  client.send("POST / HTTP/1.1\r\nContent-Le");
  EXPECT_TRUE(client.receive().closed);
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  start();
  HttpClient client(port());
  client.send("POST /c HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.receive().body, "/c:ok");
}

TEST_F(HttpServerTest, AReaderThatTakesNothingIsCut) {
  limits_.write_bytes = 1 << 20;
  start();
  HttpClient client(port());
  client.send("GET /flood HTTP/1.1\r\n\r\n");
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!gone_ && !deadline.expired()) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(gone_);
}

TEST_F(HttpServerTest, Http10ClosesAfterTheAnswer) {
  start();
  HttpClient client(port());
  client.send("GET /old HTTP/1.0\r\n\r\n");
  const HttpAnswer answer = client.receive();
  EXPECT_EQ(answer.body, "/old:");
  EXPECT_THAT(answer.head, testing::HasSubstr("Connection: close"));
  EXPECT_EQ(client.receive_until("x"), "");
}

TEST_F(HttpServerTest, BeyondTheConnectionLimitNobodyIsKept) {
  limits_.connections = 2;
  start();
  HttpClient first(port()), second(port());
  EXPECT_EQ(first.get("/1").status, 200);
  EXPECT_EQ(second.get("/2").status, 200);
  HttpClient third(port());
  EXPECT_TRUE(third.get("/3").closed);
}

}  // namespace
}  // namespace cohort
