package natsio

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nkeys"
)

// FileError is a file of the configuration that cannot be used.
type FileError struct {
	Field string // "creds", "nkey", "tls.ca" or "tls.cert"
	Err   error
}

func (e *FileError) Error() string { return e.Field + ": " + e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// CheckFiles reads the files that a configuration names, and talks to nobody. The error is a [*FileError]. What is in order may still be
// refused by a server, which is no error but waited for: see [Connect].
func CheckFiles(cfg Config) error {
	for _, file := range []struct {
		field, path string
		check       func(path string) error
	}{
		{"creds", cfg.Creds, checkCreds},
		{"nkey", cfg.NKey, checkSeed},
		{"tls.ca", cfg.TLS.CA, checkCA},
		{"tls.cert", cfg.TLS.Cert, func(cert string) error { _, err := tls.LoadX509KeyPair(cert, cfg.TLS.Key); return err }},
	} {
		if file.path == "" {
			continue
		}
		if err := file.check(file.path); err != nil {
			return &FileError{file.field, err}
		}
	}
	return nil
}

func checkCreds(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := nkeys.ParseDecoratedJWT(text); err != nil {
		return fmt.Errorf("%s: want a credentials file, with a user's JWT and seed: %w", path, err)
	}
	return checkKey(path, text)
}

func checkSeed(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return checkKey(path, text)
}

func checkKey(path string, text []byte) error {
	key, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return fmt.Errorf("%s: want the seed of a user, which begins with SU: %w", path, err)
	}
	key.Wipe()
	return nil
}

func checkCA(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return errors.New(path + ": holds no certificate in PEM")
	}
	return nil
}
