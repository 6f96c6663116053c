// HttpServer and the page's paths, over real sockets.
#include "core/telemetry/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <deque>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "aggregator/page/page.h"
#include "aggregator/page/shared_view.h"
#include "aggregator/report/report.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  bool send(const std::string& text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  void endSending() { ::shutdown(socket_, SHUT_WR); }

  // Until the server closes.
  std::string readAll() {
    while (readSome()) {
    }
    return std::exchange(text_, {});
  }
  // One answer with a Content-Length (a HEAD answer has no body).
  std::string readAnswer(bool head = false) {
    size_t end = std::string::npos;
    while ((end = text_.find("\r\n\r\n")) == std::string::npos) {
      if (!readSome()) return std::exchange(text_, {});
    }
    size_t size = end + 4;
    const size_t length = text_.find("Content-Length: ");
    if (!head && length < end) size += std::stoul(text_.substr(length + 16));
    while (text_.size() < size && readSome()) {
    }
    const std::string answer = text_.substr(0, size);
    text_.erase(0, size);
    return answer;
  }

 private:
  bool readSome() {
    char bytes[65536];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n > 0) text_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  int socket_;
  bool connected_ = false;
  std::string text_;
};

std::unique_ptr<HttpServer> serve(HttpServer::Handler handler,
                                  milliseconds timeout = milliseconds(5000)) {
  return valueOf(HttpServer::start("127.0.0.1", 0, std::move(handler), timeout));
}

HttpReply echo(const HttpRequest& request) { return {200, "text/plain", "path " + request.path}; }

std::string ask(const HttpServer& server, const std::string& request) {
  Client client(server.port());
  EXPECT_TRUE(client.send(request));
  return client.readAll();
}

TEST(HttpServer, AnswersGetAndHeadOnOneConnection) {
  const auto server = serve(echo);
  Client client(server->port());
  // Two requests at once, then a third: all on the same connection.
  ASSERT_TRUE(
      client.send("GET /a?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /bcd HTTP/1.1\r\n\r\n"));
  const std::string first = client.readAnswer();
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(first, EndsWith("\r\n\r\npath /a"));
  EXPECT_THAT(first, HasSubstr("Content-Security-Policy: default-src 'self'"));
  EXPECT_THAT(first, HasSubstr("X-Content-Type-Options: nosniff"));
  const std::string second = client.readAnswer(true);
  EXPECT_THAT(second, HasSubstr("Content-Length: 9\r\n"));
  EXPECT_THAT(second, EndsWith("\r\n\r\n"));
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.readAll(), EndsWith("\r\n\r\npath /"));
  EXPECT_THAT(ask(*server, "GET /old HTTP/1.0\r\n\r\n"), EndsWith("path /old"));
}

// The name of another site may resolve to this machine. A server for other machines has names that
// it does not know.
TEST(HttpServer, OnLoopbackAnswersToThisMachinesNamesAlone) {
  const auto local = serve(echo);
  const auto open = valueOf(HttpServer::start("0.0.0.0", 0, echo));
  const auto status = [](const HttpServer& server, const std::string& host) {
    return ask(server, "GET /x HTTP/1.1\r\nConnection: close\r\n" + host + "\r\n").substr(9, 3);
  };
  for (const char* ours :
       {"", "Host:\r\n", "Host: localhost\r\n", "Host: localhost:9464\r\n", "Host: 127.0.0.1:1\r\n",
        "Host: 127.8.0.1\r\n", "Host: [::1]:9464\r\n", "Host: [::1]\r\n"}) {
    EXPECT_EQ(status(*local, ours), "200") << ours;
  }
  for (const char* others :
       {"Host: evil.example\r\n", "Host: evil.example:9464\r\n", "Host: localhost.evil.example\r\n",
        "Host: 10.0.0.1\r\n", "Host: 127.0.0.1.evil.example\r\n", "Host: 127.0.0.1@evil\r\n",
        "Host: [::2]\r\n", "Host: [\r\n", "Host: ]\r\n", "Host: []\r\n"}) {
    EXPECT_EQ(status(*local, others), "403") << others;
    EXPECT_EQ(status(*open, others), "200") << others;
  }
  EXPECT_EQ(status(*open, "Host: a\r\nHost: b\r\n"), "400");
}

TEST(HttpServer, RefusesWhatIsNotARequestForReading) {
  const auto server = serve(echo);
  const std::pair<std::string, const char*> cases[] = {
      {"POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 405"},
      {"DELETE /x HTTP/1.1\r\n\r\n", "HTTP/1.1 405"},
      {"GET http://elsewhere/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 413"},
      {"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413"},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
       "HTTP/1.1 413"},
      {"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400"},
      {"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400"},
      {"\x16\x03\x01\x02\r\n\r\n", "HTTP/1.1 400"},
      {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400"},
      {std::string(200, '\0') + "\r\n\r\n", "HTTP/1.1 400"},
      {"GET / HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n", "HTTP/1.1 431"},
      {"GET / HTTP/1.1\r\nX: " + std::string(200000, 'x') + "\r\n\r\n", "HTTP/1.1 431"},
      {"GET /" + std::string(9000, 'x') + " HTTP/1.1\r\n\r\n", "HTTP/1.1 431"},
  };
  for (const auto& [request, answer] : cases) {
    EXPECT_THAT(ask(*server, request), StartsWith(answer)) << request.substr(0, 60);
  }
  EXPECT_THAT(ask(*server, "GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"), HasSubstr("path /x"));
}

TEST(HttpServer, SurvivesGarbageOfEveryLength) {
  const auto server = serve(echo);
  uint32_t state = 7;
  for (int round = 0; round < 200; ++round) {
    std::string garbage = round % 2 != 0 ? "GET / HTTP/1.1\r\n" : "";
    for (int i = 0; i < round; ++i) {
      state = state * 1664525 + 1013904223;
      garbage += static_cast<char>(state >> 24);
    }
    Client client(server->port());
    client.send(garbage);
    client.endSending();
    EXPECT_THAT(client.readAll(), Not(HasSubstr("HTTP/1.1 200")));
  }
  EXPECT_THAT(ask(*server, "GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"), HasSubstr("path /x"));
}

TEST(HttpServer, CutsOffASlowClientAlthoughItKeepsSending) {
  const auto server = serve(echo, milliseconds(300));
  Client client(server->port());
  const auto start = std::chrono::steady_clock::now();
  client.send("GET / HTTP/1.1\r\n");
  bool open = true;
  while (open && std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {
    std::this_thread::sleep_for(milliseconds(20));
    open = client.send("X");
  }
  EXPECT_FALSE(open);
  EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(250));
}

// The probes of a kubelet: /livez that is not answered three times in a row ends the process.
void probe(const HttpServer& server) {
  EXPECT_THAT(ask(server, "GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n"),
              HasSubstr("path /livez"));
}

TEST(HttpServer, A65thConnectionTakesThePlaceOfTheOneThatWaitsLongest) {
  const auto server = serve(echo);
  const std::string request = "GET /x HTTP/1.1\r\n\r\n";
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    ASSERT_TRUE(clients.back()->send(request));
    ASSERT_THAT(clients.back()->readAnswer(), HasSubstr("path /x")) << i;
  }
  // The first one asks again, so the second one is now the one that waits longest.
  ASSERT_TRUE(clients[0]->send(request));
  ASSERT_THAT(clients[0]->readAnswer(), HasSubstr("path /x"));
  Client late(server->port());
  late.send(request);
  EXPECT_THAT(late.readAnswer(), HasSubstr("path /x"));
  EXPECT_EQ(clients[1]->readAll(), "");  // closed
  for (const size_t i : {size_t{0}, size_t{2}, size_t{63}}) {
    ASSERT_TRUE(clients[i]->send(request));
    EXPECT_THAT(clients[i]->readAnswer(), HasSubstr("path /x")) << i;
  }
}

TEST(HttpServer, ProbesAreAnsweredWhile64ConnectionsWaitOrHaveSentHalfARequest) {
  for (const char* sent : {"", "GET /x HTTP/1.1\r\nX: y"}) {
    const auto server = serve(echo);
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 100; ++i) {
      clients.push_back(std::make_unique<Client>(server->port()));
      clients.back()->send(sent);
    }
    for (int i = 0; i < 20; ++i) probe(*server);
  }
}

// Somebody opens a connection for each that is closed, as fast as it goes.
TEST(HttpServer, ProbesAreAnsweredWhileHalfSentRequestsAreRefilled) {
  const auto server = serve(echo);
  std::atomic<bool> stop = false;
  std::thread attacker([&] {
    std::deque<std::unique_ptr<Client>> clients;
    while (!stop) {
      clients.push_back(std::make_unique<Client>(server->port()));
      clients.back()->send("GET /x HTTP/1.1\r\nX: y");
      if (clients.size() > 80) clients.pop_front();
    }
  });
  for (int i = 0; i < 35; ++i) probe(*server);
  stop = true;
  attacker.join();
}

// Whoever does not read its answer waits, too, and is not waited for.
TEST(HttpServer, ProbesAreAnsweredWhile64ConnectionsDoNotReadTheirAnswers) {
  const std::string body(3 << 20, 'v');
  const auto server = serve([&](const HttpRequest& request) {
    return HttpReply{200, "text/plain", request.path == "/livez" ? "path /livez" : body};
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->send("GET /x HTTP/1.1\r\n\r\n");
  }
  for (int i = 0; i < 5; ++i) probe(*server);
}

TEST(HttpServer, AHandlerThatThrowsAnswers500) {
  const auto server = serve([](const HttpRequest& request) -> HttpReply {
    if (request.path == "/int") throw 7;
    throw std::runtime_error("secret");
  });
  for (const char* path : {"/", "/int"}) {
    const std::string answer =
        ask(*server, std::string("GET ") + path + " HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 500"));
    EXPECT_THAT(answer, Not(HasSubstr("secret")));
  }
}

TEST(HttpServer, SaysWhyItCannotListen) {
  const auto server = serve(echo);
  const std::string port = std::to_string(server->port());
  EXPECT_THAT(HttpServer::start("127.0.0.1", server->port(), echo),
              isError(ErrorCode::kUsage,
                      "port " + port + " on 127.0.0.1 is taken: choose another with --port"));
  EXPECT_THAT(HttpServer::start("localhost", 0, echo),
              isError(ErrorCode::kUsage, HasSubstr("\"localhost\" is not an IP address")));
  EXPECT_THAT(HttpServer::start("192.0.2.1", 0, echo),
              isError(HasSubstr("on 192.0.2.1 cannot be had")));
}

TEST(HttpServer, StopsWhileClientsAreConnectedAndFreesThePort) {
  auto server = serve(echo);
  const uint16_t port = server->port();
  Client waiting(port);
  Client half(port);
  half.send("GET / HT");
  EXPECT_THAT(ask(*server, "GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"), HasSubstr("path /x"));
  server.reset();
  EXPECT_EQ(waiting.readAll(), "");
  EXPECT_FALSE(Client(port).connected());
  EXPECT_TRUE(HttpServer::start("127.0.0.1", port, echo));
}

TEST(HttpServer, SendsALargeAnswerWhole) {
  const std::string body(8 << 20, 'v');
  const auto server = serve([&](const HttpRequest&) {
    return HttpReply{200, "application/json", body};
  });
  Client client(server->port());
  client.send("GET /api/run HTTP/1.1\r\n\r\n");
  const std::string answer = client.readAnswer();
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + body));
}

TEST(ServePage, AViewIsServedWithThePresentMomentAndWhyThereIsNoNewerOne) {
  using nlohmann::json;
  EXPECT_EQ(json::parse(servedView(R"({"a":{"b":"}"},"now_unix_ms":5})", 7, "")),
            json::parse(R"({"a":{"b":"}"},"now_unix_ms":5,"served_unix_ms":7,"away":""})"));
  EXPECT_EQ(json::parse(servedView("{}", 7, "Redis \"x\" is\nnot there \xff"))["served_unix_ms"],
            7);
  EXPECT_THAT(servedView("{}", 7, "\"\xff"), HasSubstr(R"("away":"\")"));
}

TEST(ServePage, AnswersItsPathsAndNoOthers) {
  const std::pair<const char*, const char*> types[] = {
      {"/", "text/html; charset=utf-8"},
      {"/page.css", "text/css; charset=utf-8"},
      {"/page.js", "text/javascript; charset=utf-8"},
      {"/chart.js", "text/javascript; charset=utf-8"},
      {"/icon.svg", "image/svg+xml"},
      {"/api/run", "application/json"}};
  for (const auto& [path, type] : types) {
    const HttpReply reply = servePage(path, "{\"a\":1}");
    EXPECT_EQ(reply.status, 200u) << path;
    EXPECT_EQ(reply.content_type, type);
    EXPECT_FALSE(reply.body.empty());
  }
  EXPECT_EQ(servePage("/api/run", "{\"a\":1}").body, "{\"a\":1}");
  EXPECT_THAT(servePage("/", "").body, Not(HasSubstr("://")));  // the page needs no network
  for (const char* path : {"", "/x", "/api/run/", "/../etc/passwd", "/page.js/"}) {
    const HttpReply reply = servePage(path, "{}");
    EXPECT_EQ(reply.status, 404u) << path;
    EXPECT_EQ(reply.content_type, "text/plain; charset=utf-8");
  }
}

TEST(SharedViewTest, IsMadeForWhoAsksForItAndOnceForEachSnapshot) {
  using nlohmann::json;
  uint64_t now = 1000;
  SharedView shared([&] { return now; }, [&] { return now; });
  EXPECT_EQ(json::parse(shared.reply(kViewPath).body),
            (json{{"served_unix_ms", 1000}, {"away", ""}}));
  EXPECT_TRUE(shared.isWatched());
  now = 10'000;
  EXPECT_FALSE(shared.isWatched());
  RunSnapshot snapshot;
  snapshot.phase = Phase::kRunning;
  shared.set(snapshot, "01RUN");
  // A style sheet is nothing of the run.
  EXPECT_EQ(shared.reply("/page.css").status, 200u);
  EXPECT_FALSE(shared.isWatched());
  json view = json::parse(shared.reply(kViewPath).body);
  EXPECT_TRUE(shared.isWatched());
  EXPECT_EQ(view["run_id"], "01RUN");
  EXPECT_EQ(view["now_unix_ms"], 10'000);
  now = 12'000;
  shared.keep("Redis is away");
  view = json::parse(shared.reply(kViewPath).body);
  EXPECT_EQ(view["now_unix_ms"], 10'000);  // as it was made
  EXPECT_EQ(view["served_unix_ms"], 12'000);
  EXPECT_EQ(view["away"], "Redis is away");
  snapshot.phase = Phase::kFinished;
  shared.set(snapshot, "01RUN");
  view = json::parse(shared.reply(kViewPath).body);
  EXPECT_EQ(view["now_unix_ms"], 12'000);
  EXPECT_EQ(view["state"], "finished");
  EXPECT_EQ(view["away"], "");
}

TEST(ServeReport, AnswersTheReportsFilesAndNoOthers) {
  const TempFolder folder;
  const std::string dir = folder.path();
  EXPECT_THAT(serveReport("/report/summary.json", dir).body, HasSubstr("Not there yet"));
  std::ofstream(dir + "/summary.json") << "{\"updates\":3}";
  std::ofstream(dir + "/history.jsonl") << "{}";
  const HttpReply reply = serveReport("/report/summary.json", dir);
  EXPECT_EQ(reply.status, 200u);
  EXPECT_EQ(reply.content_type, "application/json");
  EXPECT_EQ(reply.body, "{\"updates\":3}");
  // Its page is one file, which the page's own policy would not let run.
  const auto html = valueOf(reportHtml({}));
  std::ofstream(dir + "/report.html") << html;
  const auto server = serve([&](const HttpRequest& asked) { return serveReport(asked.path, dir); });
  const std::string answer =
      ask(*server, "GET /report/report.html HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string head = answer.substr(0, answer.find("\r\n\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Security-Policy: default-src 'none'; style-src "
                              "'unsafe-inline'; script-src 'unsafe-inline'; object-src 'none'"));
  EXPECT_THAT(answer.substr(head.size()), HasSubstr(kReportLoads));  // for who opens the file
  EXPECT_EQ(serveReport("/report/summary.json", "").status, 404u);   // without --dir
  for (const char* path : {"/report/", "/report/history.jsonl", "/report/../summary.json",
                           "/report//etc/passwd", "/summary.json"}) {
    EXPECT_EQ(serveReport(path, dir).status, 404u) << path;
  }
  EXPECT_TRUE(isReportPath("/report/x"));
  EXPECT_FALSE(isReportPath("/reports"));
}

}  // namespace
}  // namespace allot
