package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// nats makes another server the stack's: the test connects with one prefix of the URL, the programs with another.
func (s *stack) nats(server *confServer, test, programs string, opts ...nats.Option) {
	s.Helper()
	s.natsURL = programs + server.Addr().String()
	nc, err := nats.Connect(test+server.Addr().String(), opts...)
	s.must(err)
	s.Cleanup(nc.Close)
	s.nc = nc
	s.js, err = jetstream.New(nc)
	s.must(err)
}

const withJetStream = "jetstream { store_dir: \"STORE/js\" }\n"

// TestWaysToConnect takes a message through a route over each.
func TestWaysToConnect(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.client(s.databaseURL)
	ca, cert, key := s.certificates()
	user := func(make func() (nkeys.KeyPair, error)) (public, seed string) {
		k, err := make()
		s.must(err)
		public, err = k.PublicKey()
		s.must(err)
		text, err := k.Seed()
		s.must(err)
		return public, s.file(fmt.Sprint("seed-", public), string(text))
	}
	public, seed := user(nkeys.CreateUser)
	operator, creds := s.operator()
	tls := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q", cert, key, ca)
	for _, way := range []struct {
		name, conf, scheme, yaml string
		opts                     []nats.Option
	}{
		{"password", "authorization { user: u, password: p }\n", "nats://", "user: u, password: p", []nats.Option{nats.UserInfo("u", "p")}},
		{"token", "authorization { token: t0ken }\n", "nats://", "token: t0ken", []nats.Option{nats.Token("t0ken")}},
		{"nkey", "authorization { users: [ {nkey: " + public + "} ] }\n", "nats://", "nkey: " + seed, []nats.Option{must(nats.NkeyOptionFromSeed(seed))}},
		{"creds", operator, "nats://", "creds: " + creds, []nats.Option{nats.UserCredentials(creds)}},
		{"tls", tls + " }\n", "tls://", "tls: {ca: " + ca + "}", []nats.Option{nats.RootCAs(ca)}},
		{"mtls", tls + ", verify: true }\n", "tls://", "tls: {ca: " + ca + ", cert: " + cert + ", key: " + key + "}", []nats.Option{nats.RootCAs(ca), nats.ClientCert(cert, key)}},
		{"several", "", "nats://127.0.0.1:1,nats://", "", nil},
	} {
		s.nats(natsConf(t, withJetStream+way.conf), "", way.scheme, way.opts...)
		s.waiting(c, way.name)
		s.stream("WAYS")
		b, _ := s.bridge(way.name, "nats: {"+way.yaml+"}\nroutes:\n"+route(way.name, "WAYS", ""))
		s.numbers("ways.x", way.name, 0, 1)
		s.has(way.name, [2]int{0, 1})
		s.must(b.stop(patience))
	}
}

// TestDomain: the bridge is connected to a leaf, and its streams are in the hub's domain.
func TestDomain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	hub := natsConf(t, "jetstream { store_dir: \"STORE/js\", domain: hub }\nleafnodes { host: 127.0.0.1, port: -1 }\n")
	leaf := natsConf(t, "jetstream { store_dir: \"STORE/js\", domain: leaf }\nleafnodes { remotes: [ {url: \"nats://"+hub.leaf()+"\"} ] }\n")
	s.nats(hub, "", "")
	s.natsURL = "nats://" + leaf.Addr().String()
	s.waiting(s.client(s.databaseURL), "a", "theirs")
	s.stream("FAR")
	s.stream("THEIRS")
	_, err := s.js.CreateConsumer(t.Context(), "THEIRS", jetstream.ConsumerConfig{Durable: "made", AckPolicy: jetstream.AckExplicitPolicy})
	s.must(err)
	yaml := "nats: {domain: hub}\nroutes:\n" + route("far", "FAR", "") + route("theirs", "THEIRS", ", consumer: {existing: made}")
	_, addr := s.bridge("bridge", yaml)
	s.numbers("far.x", "a", 0, 10)
	s.numbers("theirs.x", "theirs", 0, 10)
	s.has("a", [2]int{0, 10})
	s.has("theirs", [2]int{0, 10})
	s.acked("FAR", "far", 10)
	s.until(patience, "the acks of the other", func() (bool, string) {
		c, err := s.js.Consumer(t.Context(), "THEIRS", "made")
		s.must(err)
		return c.CachedInfo().AckFloor.Stream == 10, ""
	})
	s.ready(addr, http.StatusOK, "ready")
	s.audited(yaml, "far", "delivered:10")
	s.audited(yaml, "theirs", "delivered:10")
	addr = s.start("nowhere", "bridge", "--config", s.file("nowhere.yaml", "nats: {domain: nowhere}\n")).address(s)
	s.ready(addr, http.StatusServiceUnavailable, "streams: ")
}

// leaf is where leaf nodes connect.
func (c *confServer) leaf() string {
	c.t.Helper()
	v, err := c.Varz(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(v.LeafNode.Port))
}

// TestWrongCredentials are waited for, since the server may come to know them; what can never be right is the end.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := func(password string) string {
		return withJetStream + "authorization { users: [ {user: me, password: me}, {user: pm, password: " + password + "} ] }\n"
	}
	server := natsConf(t, conf("other"))
	s.nats(server, "nats://me:me@", "nats://")
	p := s.start("bridge", "bridge", "--config", s.file("wrong.yaml", "nats: {user: pm, password: pm}\n"))
	addr := p.address(s)
	s.ready(addr, http.StatusServiceUnavailable, "nats is away: nats: Authorization Violation")
	server.change(conf("pm"))
	s.ready(addr, http.StatusOK, "ready")

	for field, line := range map[string]string{
		"nats.creds":    "creds: " + s.file("broken.creds", "nothing of use"),
		"nats.nkey":     "nkey: " + s.file("broken.seed", "SUNOTASEED"),
		"nats.tls.ca":   "tls: {ca: absent.pem}",
		"nats.tls.cert": "tls: {cert: " + s.file("broken.pem", "x") + ", key: absent.pem}",
	} {
		for _, program := range []string{"bridge", "worker"} {
			if status, printed := s.run(program, "--config", s.file("files.yaml", "nats: {"+line+"}\n")); status != 2 || !strings.Contains(printed, "files.yaml:1:") || !strings.Contains(printed, field+": ") {
				t.Errorf("%s with %s: exit status %d\n%s", program, line, status, printed)
			}
		}
	}
}

// TestServersComeLater: bridge and worker start before anything is there, and Postgres comes before NATS or after it.
func TestServersComeLater(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"postgres", "nats"} {
		s := newStack(t)
		s.waiting(s.client(s.databaseURL), "a")
		s.stream("LATER")
		s.numbers("later.x", "a", 0, 10)
		postgres, databaseURL := linkToPostgres(t, s.databaseURL)
		nats, natsURL := linkToNATS(t, s.natsURL)
		s.databaseURL, s.natsURL = databaseURL, natsURL
		postgres.set(true)
		nats.set(true)
		text := "routes:\n" + route("later", "LATER", "") + "machines: [{name: remote, version: 1, start: begin, remote: {timeout: 1s}}]\n"
		yaml := s.file("later.yaml", text)
		bridge, worker := s.start("bridge", "bridge", "--config", yaml), s.start("worker", "worker", "--config", yaml)
		addrs := []string{bridge.address(s), worker.address(s)}
		for _, addr := range addrs {
			s.ready(addr, http.StatusServiceUnavailable, "database: ")
		}
		missing := "nats"
		if first == "postgres" {
			postgres.set(false)
		} else {
			nats.set(false)
			missing = "database: "
		}
		for _, addr := range addrs {
			s.ready(addr, http.StatusServiceUnavailable, missing)
		}
		postgres.set(false)
		nats.set(false)
		for _, addr := range addrs {
			s.ready(addr, http.StatusOK, "ready")
		}
		s.has("a", [2]int{0, 10})
		s.audited(text, "later", "delivered:10")
		for _, p := range []*process{bridge, worker} {
			if !strings.Contains(p.out.String(), "the database does not answer") || !strings.Contains(p.out.String(), "the database answers") {
				t.Errorf("%s does not say what it waited for", p.name)
			}
			s.must(p.stop(patience))
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// certificates of an authority, and of a server of 127.0.0.1 that is a client as well.
func (s *stack) certificates() (ca, cert, key string) {
	s.Helper()
	write := func(name, kind string, der []byte) string {
		return s.file(name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			BasicConstraintsValid: true,
		}
	}
	authorityKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	authority := template(1, "authority")
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	der := must(x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey))
	ca = write("ca.pem", "CERTIFICATE", der)
	ownKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	own := template(2, "both")
	own.IPAddresses, own.KeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, x509.KeyUsageDigitalSignature
	own.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert = write("cert.pem", "CERTIFICATE", must(x509.CreateCertificate(rand.Reader, own, authority, &ownKey.PublicKey, authorityKey)))
	return ca, cert, write("key.pem", "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ownKey)))
}

// operator makes a server's configuration of an operator with one account, and the credentials of a user of it.
func (s *stack) operator() (conf, creds string) {
	s.Helper()
	operatorKey, accountKey, userKey := must(nkeys.CreateOperator()), must(nkeys.CreateAccount()), must(nkeys.CreateUser())
	account := jwt.NewAccountClaims(must(accountKey.PublicKey()))
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	systemKey := must(nkeys.CreateAccount()) // JetStream wants one
	system := jwt.NewAccountClaims(must(systemKey.PublicKey()))
	conf = fmt.Sprintf("operator: %s\nresolver: MEMORY\nsystem_account: %s\nresolver_preload: { %s: %s, %s: %s }\n",
		must(jwt.NewOperatorClaims(must(operatorKey.PublicKey())).Encode(operatorKey)), system.Subject,
		system.Subject, must(system.Encode(operatorKey)), account.Subject, must(account.Encode(operatorKey)))
	user := must(jwt.NewUserClaims(must(userKey.PublicKey())).Encode(accountKey))
	return conf, s.file("user.creds", string(must(jwt.FormatUserConfig(user, must(userKey.Seed())))))
}
