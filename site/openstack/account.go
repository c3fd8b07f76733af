package openstack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
)

// account is a user's project in a cloud.
type account struct {
	options Options
	user    *site.User
	project string // its ID

	nova, neutron, glance *gophercloud.ServiceClient

	// Why there can be no instances: the cloud lacks Nova or Glance, whose client is then nil.
	without error
}

// open logs in to Keystone, and finds the endpoints of the services.
func open(ctx context.Context, u *site.User, raw json.RawMessage) (site.Account, error) {
	a := &account{user: u}
	if err := json.Unmarshal(raw, &a.options); err != nil {
		return nil, fmt.Errorf("openstack: %w", err)
	}
	as, at, secure, err := credentials(a.options.Cloud, u.Home())
	if err != nil {
		return nil, err
	}
	as.AllowReauth = true
	client, err := login(ctx, as, secure)
	if err != nil {
		return nil, err
	}
	if a.project, err = project(client); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		to   **gophercloud.ServiceClient
		make func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
		name string
	}{
		{&a.nova, openstack.NewComputeV2, "compute (Nova)"},
		{&a.neutron, openstack.NewNetworkV2, "network (Neutron)"},
		{&a.glance, openstack.NewImageV2, "image (Glance)"},
	} {
		if *s.to, err = s.make(client, at); err == nil {
			continue
		}
		where := ""
		if at.Region != "" {
			where = " in the region " + at.Region
		}
		err = fmt.Errorf("the cloud at %s has no service %s%s: openstack catalog list", as.IdentityEndpoint, s.name,
			where)
		if s.to == &a.neutron {
			return nil, err
		}
		if *s.to = nil; a.without == nil {
			a.without = err
		}
	}
	return a, nil
}

// login requests a token from Keystone.
func login(ctx context.Context, as gophercloud.AuthOptions, secure *tls.Config) (*gophercloud.ProviderClient, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secure
	transport.ResponseHeaderTimeout = patience.Cloud.Duration()
	client, err := config.NewProviderClient(ctx, as,
		config.WithHTTPClient(http.Client{Transport: site.Bounded{RoundTripper: transport, Most: mostSaid}}))
	if err != nil {
		return nil, explained("log in to "+as.IdentityEndpoint, err)
	}
	client.UserAgent.Prepend("trivet")
	client.RetryBackoffFunc, client.MaxBackoffRetries, client.RetryFunc = backOff, maxTries, again
	return client, nil
}

// credentials reads the credentials from where OpenStack's tools expect them: clouds.yaml, or
// variables OS_*.
func credentials(cloud,
	home string) (as gophercloud.AuthOptions, at gophercloud.EndpointOpts, secure *tls.Config, err error) {
	fail := func(format string, args ...any) (gophercloud.AuthOptions, gophercloud.EndpointOpts, *tls.Config, error) {
		return as, at, nil, fmt.Errorf(format, args...)
	}
	if cloud = cmp.Or(cloud, os.Getenv("OS_CLOUD")); cloud == "" {
		if os.Getenv("OS_AUTH_URL") == "" {
			return fail("which cloud: there are neither OS_CLOUD nor OS_AUTH_URL\n  write  openstack: {cloud: NAME},  a name in clouds.yaml, or keep them over sudo:  sudo -E trivet …")
		}
		return fromEnvironment()
	}
	file, yaml, secret, err := cloudsFile(home)
	if err != nil {
		return as, at, nil, err
	}
	options := []clouds.ParseOption{clouds.WithCloudName(cloud), clouds.WithCloudsYAML(bytes.NewReader(yaml))}
	if secret != nil {
		options = append(options, clouds.WithSecureYAML(bytes.NewReader(secret)))
	}
	if as, at, secure, err = clouds.Parse(options...); err != nil {
		return fail("%s: %v", file, err)
	}
	if as.IdentityEndpoint == "" {
		return fail("%s: cloud %s has no auth_url", file, cloud)
	}
	return as, at, secure, nil
}

// cloudsFile reads clouds.yaml, and secure.yaml beside it, from where the OpenStack client looks
// for them, with the rights of the requesting user.
func cloudsFile(home string) (file string, yaml, secret []byte, err error) {
	files := []string{os.Getenv("OS_CLIENT_CONFIG_FILE")}
	if files[0] == "" {
		files = []string{"clouds.yaml", filepath.Join(home, ".config", "openstack", "clouds.yaml"),
			"/etc/openstack/clouds.yaml"}
	}
	err = asuser.Do(func() error {
		for _, file = range files {
			if yaml, err = os.ReadFile(file); errors.Is(err, os.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			if secret, err = os.ReadFile(filepath.Join(filepath.Dir(file), "secure.yaml")); errors.Is(err,
				os.ErrNotExist) {
				err = nil
			}
			return err
		}
		return fmt.Errorf("there is no clouds.yaml: looked for %s", strings.Join(files, ", "))
	})
	return file, yaml, secret, err
}

// fromEnvironment reads the variables that an openrc file sets. gophercloud's own reader does not
// support domains of users and projects.
func fromEnvironment() (as gophercloud.AuthOptions, at gophercloud.EndpointOpts, secure *tls.Config, err error) {
	e := os.Getenv
	as = gophercloud.AuthOptions{
		IdentityEndpoint: e("OS_AUTH_URL"), Username: e("OS_USERNAME"), UserID: e("OS_USER_ID"),
		Password: e("OS_PASSWORD"), TokenID: e("OS_TOKEN"), DomainID: cmp.Or(e("OS_USER_DOMAIN_ID"), e("OS_DOMAIN_ID")),
		DomainName:                  cmp.Or(e("OS_USER_DOMAIN_NAME"), e("OS_DOMAIN_NAME")),
		ApplicationCredentialID:     e("OS_APPLICATION_CREDENTIAL_ID"),
		ApplicationCredentialName:   e("OS_APPLICATION_CREDENTIAL_NAME"),
		ApplicationCredentialSecret: e("OS_APPLICATION_CREDENTIAL_SECRET"),
	}
	if as.UserID != "" || as.DomainID != "" {
		as.DomainName = ""
	}
	if id, name := e("OS_PROJECT_ID"), cmp.Or(e("OS_PROJECT_NAME"), e("OS_TENANT_NAME")); id != "" {
		as.Scope = &gophercloud.AuthScope{ProjectID: id}
	} else if name != "" {
		as.Scope = &gophercloud.AuthScope{ProjectName: name, DomainID: cmp.Or(e("OS_PROJECT_DOMAIN_ID"), as.DomainID)}
		if as.Scope.DomainID == "" {
			as.Scope.DomainName = cmp.Or(e("OS_PROJECT_DOMAIN_NAME"), as.DomainName)
		}
	}
	at = gophercloud.EndpointOpts{Region: e("OS_REGION_NAME")}
	if i := strings.TrimSuffix(e("OS_INTERFACE"), "URL"); i != "" {
		at.Availability = gophercloud.Availability(i)
	}
	if file := e("OS_CACERT"); file != "" {
		options := []clouds.ParseOption{clouds.WithCloudName("x"),
			clouds.WithCloudsYAML(strings.NewReader("clouds: {x: {}}")), clouds.WithCACertPath(file)}
		_, _, secure, err = clouds.Parse(options...)
	}
	return as, at, secure, err
}

// project returns the ID of a token's project.
func project(client *gophercloud.ProviderClient) (string, error) {
	if result, ok := client.GetAuthResult().(tokens.CreateResult); ok {
		if p, err := result.ExtractProject(); err == nil && p != nil && p.ID != "" {
			return p.ID, nil
		}
	}
	return "", errors.New("the credentials are for no project: set project_name in clouds.yaml, or OS_PROJECT_NAME")
}

// mostSaid limits responses, in bytes: a project with 10,000 ports needs less.
const mostSaid = 64 << 20

// maxTries is how often a request is sent in all.
const maxTries = 6

// backOff waits before a request is repeated to a service that is overloaded (RFC 6585, section 4).
func backOff(ctx context.Context, said *gophercloud.ErrUnexpectedResponseCode, err error, tries uint) error {
	wait := pause(tries)
	if s, parsed := strconv.Atoi(said.ResponseHeader.Get("Retry-After")); parsed == nil && s >= 0 {
		wait = time.Duration(s) * time.Second
	}
	if wait > patience.Cloud.Duration() {
		return *said
	}
	return sleep(ctx, wait)
}

// again decides whether a failed request is repeated: it must be idempotent, and the failure may be
// temporary. It returns nil to repeat it, after a pause.
func again(ctx context.Context, method, _ string, _ *gophercloud.RequestOpts, err error, tries uint) error {
	if tries >= maxTries || method == http.MethodPost || !passing(err) {
		return err
	}
	if e := sleep(ctx, pause(tries)); e != nil {
		return err
	}
	return nil
}

// passing reports whether a failure may be temporary.
func passing(err error) bool {
	var said gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &said) {
		return said.Actual >= 500 && said.Actual != http.StatusNotImplemented
	}
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// pause returns a second, doubled with each try.
func pause(tries uint) time.Duration { return time.Second << min(tries-1, 5) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// said finds the message in a service's refusal, whose form differs per service.
var said = regexp.MustCompile(`"message":\s*"((?:[^"\\]|\\.)*)"`)

// explained says what failed, and how the service explains it. It never contains the request.
func explained(what string, err error) error {
	if err == nil {
		return nil
	}
	var code gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &code) {
		return fmt.Errorf("%s: %w", what, err)
	}
	text := http.StatusText(code.Actual)
	if m := said.FindSubmatch(code.Body); m != nil {
		var message string
		if json.Unmarshal([]byte(`"`+string(m[1])+`"`), &message) == nil {
			text = message
		}
	}
	return fmt.Errorf("%s: %s (%d)", what, site.Short(strings.TrimSpace(text)), code.Actual)
}
