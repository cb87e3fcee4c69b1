package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// DefaultAddr is where `belay chaos` listens.
const DefaultAddr = "127.0.0.1:18080"

// maxBody is the largest request body that is read: 32 MB, the limit of the Anthropic Messages API.
const maxBody = 32 << 20

// Options shape a server.
type Options struct {
	// Clock is what delays are measured by. Default: the real one.
	Clock clock.Clock
	// Addr is where Start listens, as host:port. Default DefaultAddr.
	Addr string
	// Listener replaces Addr; the server owns it.
	Listener net.Listener
	// Log is told of each request and its outcome, without keys and texts. Default: nothing.
	Log *slog.Logger
	// Seed makes ids and signatures repeatable. 0: they differ from server to server.
	Seed uint64
}

// Server is the scripted provider. It is used by Start and Shutdown, or as a Handler in a test's own HTTP server.
type Server struct {
	opts    Options
	mint    mint
	journal *journal

	mu      sync.RWMutex
	players map[string]*player
	minted  map[string]*mintedTurns

	// closing ends scripted delays and silences.
	closing context.Context
	close   context.CancelFunc

	server   *http.Server
	listener net.Listener
	served   chan error
}

// NewServer returns a server that plays the script. It does nothing until Start, or until its Handler is called.
func NewServer(script *Script, opts Options) *Server {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Addr = orDefault(opts.Addr, DefaultAddr)
	s := &Server{opts: opts, mint: newMint(opts.Seed), journal: newJournal(), players: map[string]*player{}, minted: map[string]*mintedTurns{}}
	for name, leg := range script.Legs {
		s.players[name] = newPlayer(name, leg)
		s.minted[name] = newMintedTurns()
	}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// Start listens and serves until Shutdown. When it returns nil, connections are accepted.
func (s *Server) Start() error {
	if s.server != nil {
		return errors.New("chaos server: already started")
	}
	s.listener = s.opts.Listener
	if s.listener == nil {
		var err error
		if s.listener, err = net.Listen("tcp", s.opts.Addr); err != nil {
			return fmt.Errorf("chaos server: listen on %s: %w", s.opts.Addr, err)
		}
	}
	s.server = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug)}
	s.served = make(chan error, 1)
	go func() { s.served <- s.server.Serve(s.listener) }()
	return nil
}

// Shutdown ends all scripted delays and silences, waits for the answers in progress, and stops listening. If the context
// ends first, it closes the remaining connections and returns the context's error. It is needed after Start, and useful
// without it to end the silences of a Handler.
func (s *Server) Shutdown(ctx context.Context) error {
	s.close()
	if s.server == nil {
		return nil
	}
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("chaos server: %w", serveErr))
	}
	s.served <- http.ErrServerClosed
	return err
}

// Addr is the address listened on, empty before Start.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Handler serves the legs and the control endpoints under /_chaos/.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.control(mux)
	mux.HandleFunc("/", s.serveLeg)
	return mux
}

// Requests returns what is remembered of the requests, oldest first. At most the last 20,000 are.
func (s *Server) Requests() []Request { return s.journal.list() }

// Bill returns what each leg would have billed since the start or the last Reset.
func (s *Server) Bill() map[string]Bill { return s.journal.bills() }

// Reset starts every leg at its first step and forgets all requests and bills.
func (s *Server) Reset() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.players {
		p.replace(p.script())
	}
	s.journal.reset()
}

// Replace swaps the scripts of the legs that the given script names, and starts these at their first step. Other legs
// and the bill stay. A leg keeps its dialect; a new leg is added.
func (s *Server) Replace(script *Script) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(script.Legs)) {
		if p := s.players[name]; p != nil && p.script().Dialect != script.Legs[name].Dialect {
			return fmt.Errorf("chaos server: leg %q speaks %s and cannot be replaced by one that speaks %s", name, p.script().Dialect, script.Legs[name].Dialect)
		}
	}
	for name, leg := range script.Legs {
		if p := s.players[name]; p != nil {
			p.replace(leg)
			continue
		}
		s.players[name], s.minted[name] = newPlayer(name, leg), newMintedTurns()
	}
	return nil
}

// exchange is one request to a leg and what is needed to answer it.
type exchange struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	player  *player
	leg     Leg
	dialect dialect
	minted  *mintedTurns
	body    []byte
	hash    string
	entry   *entry
}

func (s *Server) serveLeg(w http.ResponseWriter, r *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.RLock()
	p, minted := s.players[name], s.minted[name]
	s.mu.RUnlock()
	if p == nil {
		http.Error(w, fmt.Sprintf("the script has no leg %q; a path is /<leg>/v1/…", name), http.StatusNotFound)
		return
	}
	leg := p.script()
	x := &exchange{s: s, w: w, r: r, player: p, leg: leg, dialect: dialectOf(leg.Dialect), minted: minted}
	var tooLarge *http.MaxBytesError
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil && !errors.As(err, &tooLarge) {
		return // the client left while it sent
	}
	sum := sha256.Sum256(body)
	x.body, x.hash = body, hex.EncodeToString(sum[:])
	x.entry = s.journal.open(Request{Leg: name, Time: s.opts.Clock.Now(), BodySHA256: x.hash, BodyBytes: len(body)})
	defer func() {
		q := x.entry.request
		s.opts.Log.Info("request", "sequence", q.Sequence, "leg", q.Leg, "step", q.Step, "status", q.Status, "outcome", q.Outcome, "events", q.Events)
	}()
	if tooLarge != nil {
		x.refuse(rejection{status: 413, kind: kindTooLarge, message: "Request exceeds the maximum size"})
		return
	}
	x.serve("/" + rest)
}

func (x *exchange) serve(path string) {
	if rejected := x.checkHTTP(path); rejected != nil {
		x.refuse(*rejected)
		return
	}
	object, err := parseObject(x.body)
	if err != nil {
		x.refuse(rejection{status: 400, kind: kindInvalid, message: "We could not parse the JSON body of your request: " + err.Error()})
		return
	}
	conv, rejected := x.dialect.check(object, checkContext{name: x.player.name, leg: x.leg, mint: x.s.mint, minted: x.minted})
	x.s.journal.note(x.entry, func(q *Request) {
		q.Model, q.Stream, q.Messages, q.AssistantTurns = conv.model, conv.stream, conv.messages, conv.assistantTurns
	})
	if len(rejected) == 0 && x.leg.ContextWindow > 0 {
		if tokens := tokensOf(len(x.body)); tokens+conv.reserved > x.leg.ContextWindow {
			rejected = append(rejected, x.dialect.tooLong(tokens, conv.reserved, x.leg.ContextWindow))
		}
	}
	if len(rejected) > 0 {
		x.refuse(rejected...)
		return
	}
	played, unplayed := x.player.play(conv, x.hash)
	x.s.journal.note(x.entry, func(q *Request) { q.Step = played.number })
	if unplayed != nil {
		x.refuse(*unplayed)
		return
	}
	x.perform(played, conv)
}

// checkHTTP checks everything outside the body, in the order of the real APIs.
func (x *exchange) checkHTTP(path string) *rejection {
	key := x.dialect.keyOf(x.r.Header)
	switch {
	case path != x.dialect.path():
		return &rejection{status: 404, kind: kindNotFound, message: fmt.Sprintf("Invalid URL (%s %s)", x.r.Method, path)}
	case x.r.Method != http.MethodPost:
		x.w.Header().Set("Allow", http.MethodPost)
		return &rejection{status: 405, kind: kindInvalid, message: fmt.Sprintf("Not allowed to %s on %s", x.r.Method, path)}
	case key == "":
		return &rejection{status: 401, kind: kindAuthentication, message: "You didn't provide an API key."}
	case x.leg.APIKey != "" && key != x.leg.APIKey:
		return &rejection{status: 401, kind: kindAuthentication, code: "invalid_api_key", message: "Incorrect API key provided."}
	case !strings.HasPrefix(x.r.Header.Get("Content-Type"), "application/json"):
		return &rejection{status: 400, kind: kindInvalid, message: "The Content-Type must be application/json."}
	}
	return x.dialect.checkHeaders(x.r.Header)
}

// requestID names the exchange in the vendor's style.
func (x *exchange) requestID() string {
	return x.dialect.idShapes().request.mint(x.s.mint, x.player.name, uint64(x.entry.request.Sequence), 0)
}

// refuse answers with the first of the rejections and remembers all.
func (x *exchange) refuse(rejected ...rejection) {
	problems := make([]string, len(rejected))
	for i, r := range rejected {
		problems[i] = r.message
	}
	first := rejected[0]
	x.s.journal.note(x.entry, func(q *Request) { q.Status, q.Problems = first.status, problems })
	x.s.journal.settle(x.entry, OutcomeRejected, Usage{}, 0)
	id := x.requestID()
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set(x.dialect.requestIDHeader(), id)
	x.w.WriteHeader(first.status)
	// A client that does not wait for its refusal changes nothing.
	_, _ = x.w.Write(x.dialect.errorBody(first, id))
}

// tokensOf is this server's tokenizer: one token for every four bytes begun.
func tokensOf(bytes int) int64 { return (int64(bytes) + 3) / 4 }
