package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/rack/provision"
	"trivet.dev/trivet/site"
)

func (a *app) rackBootstrap() *cobra.Command {
	p := &provisioning{app: a, run: provision.Run{Playbook: "bootstrap"}}
	cmd := p.command("bootstrap",
		"Let yourself in to new devices: your key, root without a password, their host keys pinned",
		"Each host key that is new is shown, and pinned (~/.ssh/known_hosts) after a yes; from then on a device with another one is refused.\n"+
			"Passwords are asked for where a device does not take your key yet. They are kept in memory only.",
		"  trivet rack bootstrap rack.yaml\n  trivet rack bootstrap rack.yaml pi-7")
	b := &bootstrap{provisioning: p}
	cmd.Flags().BoolVar(&b.accept, "accept-host-keys", false, "pin new host keys without a question")
	cmd.Flags().StringVar(&b.passwordFile, "password-file", "", "read the password from a file that only you can read (-: from standard input) instead of asking; it is that of all devices")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.read(args); err != nil {
			return err
		}
		return b.do(cmd.Context())
	}
	return cmd
}

// bootstrap gives the user access to devices.
type bootstrap struct {
	*provisioning
	accept       bool
	passwordFile string

	mu   sync.Mutex
	lost []*provision.Outcome // devices that cannot be reached
}

func (b *bootstrap) do(ctx context.Context) error {
	all := slices.DeleteFunc(slices.Clone(b.run.Rack.Machines),
		func(m *site.Machine) bool { return !b.concerns(m.Name) })
	devices, err := b.pin(ctx, all)
	if err != nil {
		return err
	}
	devices = slices.DeleteFunc(devices, (*site.Machine).Unmanaged) // the playbooks leave them alone
	if err := b.passwords(ctx, devices); err != nil {
		return err
	}
	b.run.Devices, b.run.Variables = nil, map[string]map[string]any{}
	for _, m := range devices {
		key, err := b.run.User.PublicKey(m)
		if err != nil {
			return err
		}
		b.run.Devices = append(b.run.Devices, m.Name)
		b.run.Variables[m.Name] = map[string]any{"trivet_public_key": key}
	}
	if len(devices) == 0 {
		return b.sumUp(b.lost)
	}
	got, err := b.play(ctx)
	if err != nil {
		return err
	}
	b.verify(ctx, devices, got)
	return b.sumUp(append(got, b.lost...))
}

// each calls a function for all devices concurrently.
func each(devices []*site.Machine, do func(*site.Machine)) {
	var wg sync.WaitGroup
	for _, m := range devices {
		wg.Go(func() { do(m) })
	}
	wg.Wait()
}

// lose records that a device cannot be used, and why.
func (b *bootstrap) lose(m *site.Machine, err error) {
	why := err.Error()
	if known := new(site.Unreachable); errors.As(err, &known) {
		why = strings.TrimSpace(known.Why.Error() + "\n" + known.Cure)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = append(b.lost, &provision.Outcome{Device: m.Name, Failed: provision.Unreachable, Why: why})
}

func (b *bootstrap) isLost(m *site.Machine) bool {
	return slices.ContainsFunc(b.lost, func(o *provision.Outcome) bool { return o.Device == m.Name })
}

// pin returns the devices whose host keys are known, or that the user confirms.
func (b *bootstrap) pin(ctx context.Context, devices []*site.Machine) ([]*site.Machine, error) {
	keys := map[string]site.HostKey{}
	each(devices, func(m *site.Machine) {
		k, err := b.run.User.HostKey(ctx, m)
		if err != nil {
			b.lose(m, err)
			return
		}
		b.mu.Lock()
		keys[m.Name] = k
		b.mu.Unlock()
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	devices = slices.DeleteFunc(devices, b.isLost)
	rows := [][]string{{"DEVICE", "AT", "NEW HOST KEY", "FINGERPRINT"}}
	for _, m := range devices {
		if k := keys[m.Name]; !k.Known {
			rows = append(rows, []string{m.Name, k.Address, k.Key.Type(), ssh.FingerprintSHA256(k.Key)})
		}
	}
	if len(rows) == 1 {
		return devices, nil
	}
	if err := b.agreeToKeys(ctx, rows); err != nil {
		return nil, err
	}
	for _, m := range devices {
		if k := keys[m.Name]; !k.Known {
			if err := b.run.User.Pin(m, k); err != nil {
				return nil, fmt.Errorf("pin the host key of %s: %w", m.Name, err)
			}
		}
	}
	return devices, nil
}

// agreeToKeys shows new host keys, and asks whether they are those of the devices.
func (b *bootstrap) agreeToKeys(ctx context.Context, rows [][]string) error {
	for _, line := range layOut(rows, columnsOf(b.err)) {
		fmt.Fprintln(b.err, line)
	}
	if b.accept {
		return nil
	}
	if !isTerminal(os.Stdin) || !isTerminal(b.err) {
		return usagef("there is no terminal to ask on whether these are the devices' own: --accept-host-keys pins them; nothing was changed")
	}
	answer, err := b.ask(ctx,
		fmt.Sprintf("pin %s? (a device tells its own:  ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) [y/N] ",
			words.Plural(len(rows)-1, "host key")))
	if err != nil {
		return err
	}
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// passwords asks for the passwords of devices that do not accept the user's key, or require one to
// become root.
func (b *bootstrap) passwords(ctx context.Context, devices []*site.Machine) error {
	wants := map[string]bool{}
	each(devices, func(m *site.Machine) {
		err := b.entered(ctx, m)
		b.mu.Lock()
		wants[m.Name] = err != nil
		b.mu.Unlock()
	})
	b.run.Passwords = map[string]string{}
	before := ""
	for _, m := range devices {
		if !wants[m.Name] {
			continue
		}
		word, err := b.password(m, before)
		if err != nil {
			return err
		}
		before, b.run.Passwords[m.Name] = word, word
	}
	return ctx.Err()
}

// entered says whether a device accepts the user's key, and lets the user become root without a
// password.
func (b *bootstrap) entered(ctx context.Context, m *site.Machine) error {
	login, err := site.Dial(ctx, m, b.run.User)
	if err != nil {
		return err
	}
	defer login.Close()
	if _, err := login.Run(ctx, `[ "$(id -u)" = 0 ] || sudo -n true`, nil); err != nil {
		return fmt.Errorf("it lets %s in by key, who cannot be root there without a password: %w", m, err)
	}
	return nil
}

// password asks for a device's password.
func (b *bootstrap) password(m *site.Machine, before string) (string, error) {
	switch {
	case b.passwordFile != "" && before != "":
		return before, nil
	case b.passwordFile != "":
		return readPassword(b.passwordFile)
	case !isTerminal(os.Stdin) || !isTerminal(b.err):
		return "", usagef("%s (%s) wants a password, and there is no terminal to ask on: --password-file FILE",
			m.Name, m)
	}
	question := fmt.Sprintf("password of %s (%s): ", m, m.Name)
	if before != "" {
		question = fmt.Sprintf("password of %s (%s; Enter: the same): ", m, m.Name)
	}
	fmt.Fprint(b.err, question)
	word, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(b.err)
	if err != nil {
		return "", err
	}
	if len(word) == 0 && before == "" {
		return "", errors.New("nothing was changed")
	}
	if len(word) == 0 {
		return before, nil
	}
	return string(word), nil
}

// readPassword reads the first line of a file that nobody else can read.
func readPassword(file string) (string, error) {
	f := os.Stdin
	if file != "-" {
		var err error
		if f, err = os.Open(file); err != nil {
			return "", err
		}
		defer f.Close()
		if i, err := f.Stat(); err == nil && i.Mode().IsRegular() && i.Mode().Perm()&0o077 != 0 {
			return "", fmt.Errorf("others can read %s: chmod 600 %[1]s", file)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if word := strings.TrimSuffix(string(line), "\r"); word != "" || err != nil {
		return word, err
	}
	return "", fmt.Errorf("%s holds no password", file)
}

// verify logs in to the devices in the way that labs will.
func (b *bootstrap) verify(ctx context.Context, devices []*site.Machine, got []*provision.Outcome) {
	each(devices, func(m *site.Machine) {
		i := slices.IndexFunc(got, func(o *provision.Outcome) bool { return o.Device == m.Name })
		if i < 0 || got[i].Failed != "" {
			return
		}
		if err := b.entered(ctx, m); err != nil {
			got[i].Failed, got[i].Why = "the proof", err.Error()
		}
	})
}
