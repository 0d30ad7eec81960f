package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// signer signs by the scheme of Standard Webhooks: a signature of each key.
type signer []*standardwebhooks.Webhook

func newSigner(secrets []string) (keys signer, err error) {
	for _, secret := range secrets {
		if err := CheckSecret(secret); err != nil {
			return nil, err
		}
		key, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// CheckSecret says what is wrong with a secret; it does not repeat it.
func CheckSecret(secret string) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return errors.New(`a secret is not in base64, as Standard Webhooks wants it: make one with  echo "whsec_$(openssl rand -base64 32)"`)
	}
	if len(key) == 0 {
		return errors.New("a secret is empty")
	}
	return nil
}

// sign sets the headers. Without a key there is no signature.
func (keys signer) sign(h http.Header, id string, at time.Time, body []byte) error {
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	signatures := make([]string, len(keys))
	for i, key := range keys {
		s, err := key.Sign(id, at, body)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		signatures[i] = s
	}
	if len(keys) > 0 {
		h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}
