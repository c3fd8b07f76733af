package ospf

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash"
	"strings"
	"time"
)

// AuthType is the AuType of an interface (section D).
type AuthType uint16

const (
	AuthNull          AuthType = iota // section D.1
	AuthSimple                        // a password in clear; section D.2
	AuthCryptographic                 // section D.3; RFC 5709
)

// String returns the name of the type.
func (t AuthType) String() string {
	if t > AuthCryptographic {
		return fmt.Sprintf("type %d", uint16(t))
	}
	return []string{"none", "simple", "cryptographic"}[t]
}

// Algorithm is how a key makes a digest. It is not in the packet: both ends must agree.
type Algorithm uint8

const (
	KeyedMD5 Algorithm = iota // section D.4.3
	HMACSHA1                  // the others: RFC 5709 section 3.3
	HMACSHA256
	HMACSHA384
	HMACSHA512
)

// String returns the name of the algorithm, as files write it.
func (a Algorithm) String() string {
	if a > HMACSHA512 {
		return fmt.Sprintf("algorithm %d", uint8(a))
	}
	return []string{"md5", "sha1", "sha256", "sha384", "sha512"}[a]
}

// Key is a key of cryptographic authentication (section D.3). A zero time sets no bound.
type Key struct {
	ID        uint8
	Algorithm Algorithm
	Secret    []byte // for KeyedMD5 cut or padded with zeros to 16 octets

	StartGenerate, StopGenerate time.Time // when packets are sent with the key
	StartAccept, StopAccept     time.Time // when packets are accepted with it
}

// Auth is the authentication of an interface (appendix D). The zero value is none.
type Auth struct {
	Type     AuthType
	Password string // for AuthSimple: at most 8 octets
	Keys     []Key  // for AuthCryptographic: packets are sent with the one that became valid last
}

// check returns an error if the configuration is invalid.
func (a Auth) check() error {
	switch {
	case a.Type > AuthCryptographic:
		return fmt.Errorf("authentication type %d is not known", a.Type)
	case a.Type == AuthSimple && len(a.Password) > 8:
		return fmt.Errorf("a password of simple authentication has 8 octets at most, this one %d", len(a.Password))
	case a.Type == AuthCryptographic && len(a.Keys) == 0:
		return fmt.Errorf("cryptographic authentication needs a key")
	}
	for _, k := range a.Keys {
		if k.Algorithm > HMACSHA512 {
			return fmt.Errorf("key %d: algorithm %d is not known", k.ID, k.Algorithm)
		}
	}
	return nil
}

// overhead returns the octets that a digest adds to a packet, at most.
func (a Auth) overhead() int {
	n := 0
	if a.Type == AuthCryptographic {
		for _, k := range a.Keys {
			n = max(n, k.size())
		}
	}
	return n
}

func within(now, start, stop time.Time) bool {
	return !now.Before(start) && (stop.IsZero() || now.Before(stop))
}

// sendKey returns the key to send with at a time: the one that became valid last (section D.3). If
// none is valid any more, the last one to expire remains in use (RFC 5709, section 3.2).
func (a Auth) sendKey(now time.Time) *Key {
	var best, last *Key
	for i := range a.Keys {
		k := &a.Keys[i]
		if within(now, k.StartGenerate, k.StopGenerate) && (best == nil || k.StartGenerate.After(best.StartGenerate)) {
			best = k
		}
		if last == nil || k.StopGenerate.After(last.StopGenerate) {
			last = k
		}
	}
	if best == nil {
		return last
	}
	return best
}

// Sign completes an encoded packet whose checksum and authentication are zero (section D.4). seq is
// the cryptographic sequence number, which must not decrease; now selects the key.
func (a Auth) Sign(b []byte, seq uint32, now time.Time) []byte {
	binary.BigEndian.PutUint16(b[14:], uint16(a.Type))
	if a.Type != AuthCryptographic {
		binary.BigEndian.PutUint16(b[12:], onesComplement(b))
		if a.Type == AuthSimple {
			copy(b[16:24], a.Password)
		}
		return b
	}
	k := a.sendKey(now)
	b[18], b[19] = k.ID, byte(k.size())
	binary.BigEndian.PutUint32(b[20:], seq)
	return append(b, k.digest(b)...)
}

// Verify checks the checksum and authentication of a packet accepted by Decode (section D.5), and
// returns its cryptographic sequence number. The caller, which knows the neighbour, must check that
// this does not decrease. Data after the digest (link-local signaling, RFC 5613) is ignored.
func (a Auth) Verify(b []byte, now time.Time) (seq uint32, err error) {
	length := int(binary.BigEndian.Uint16(b[2:]))
	if t := AuthType(binary.BigEndian.Uint16(b[14:])); t != a.Type {
		return 0, disagree(DifferAuthType, t.String(), a.Type.String(), "authentication type %d, ours is %d", t, a.Type)
	}
	if a.Type == AuthCryptographic {
		return a.verifyDigest(b, length, now)
	}
	// Including the packet's own checksum, the sum is 0.
	if onesComplement(b[:length]) != 0 {
		return 0, fmt.Errorf("the checksum is wrong")
	}
	if a.Type == AuthSimple {
		var password [8]byte
		copy(password[:], a.Password)
		if subtle.ConstantTimeCompare(password[:], b[16:24]) != 1 {
			return 0, disagree(DifferAuthKey, "another password", "the link's", "the password differs from ours")
		}
	}
	return 0, nil
}

func (a Auth) verifyDigest(b []byte, length int, now time.Time) (seq uint32, err error) {
	for i := range a.Keys {
		k := &a.Keys[i]
		if k.ID != b[18] || !within(now, k.StartAccept, k.StopAccept) {
			continue
		}
		if int(b[19]) != k.size() || len(b) < length+k.size() {
			return 0, disagree(DifferAuthKey, fmt.Sprintf("a digest of %d octets", len(b)-length), k.String(),
				"a digest of %d octets with key %d, which makes %d", len(b)-length, k.ID, k.size())
		}
		if subtle.ConstantTimeCompare(k.digest(b[:length]), b[length:length+k.size()]) != 1 {
			return 0, disagree(DifferAuthKey, fmt.Sprintf("key %d with another secret", k.ID), k.String(),
				"the digest with key %d is wrong: the secrets differ", k.ID)
		}
		return binary.BigEndian.Uint32(b[20:]), nil
	}
	var ours []string
	for _, k := range a.Keys {
		ours = append(ours, k.String())
	}
	return 0, disagree(DifferAuthKey, fmt.Sprintf("key %d", b[18]), strings.Join(ours, ", "),
		"key %d is not valid here", b[18])
}

// String names a key, not its secret.
func (k Key) String() string { return fmt.Sprintf("key %d (%v)", k.ID, k.Algorithm) }

func (k Key) hash() func() hash.Hash {
	switch k.Algorithm {
	case HMACSHA1:
		return sha1.New
	case HMACSHA256:
		return sha256.New
	case HMACSHA384:
		return sha512.New384
	case HMACSHA512:
		return sha512.New
	}
	return md5.New
}

// size returns the octets of a digest.
func (k Key) size() int { return k.hash()().Size() }

// digest returns the digest of a packet. For MD5 it is the hash of the packet and the key padded
// with zeros (section D.4.3). For SHA it is the HMAC of the packet and the constant Apad (RFC 5709
// section 3.3); a key longer than the hash is replaced by its hash.
func (k Key) digest(packet []byte) []byte {
	if k.Algorithm == KeyedMD5 {
		var secret [md5.Size]byte
		copy(secret[:], k.Secret)
		sum := md5.Sum(append(packet[:len(packet):len(packet)], secret[:]...))
		return sum[:]
	}
	secret := k.Secret
	if len(secret) > k.size() {
		h := k.hash()()
		h.Write(secret)
		secret = h.Sum(nil)
	}
	h := hmac.New(k.hash(), secret)
	h.Write(packet)
	for range k.size() / 4 {
		h.Write([]byte{0x87, 0x8f, 0xe1, 0xf3})
	}
	return h.Sum(nil)
}
