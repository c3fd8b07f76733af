package openstack

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology/formats"
)

// maxUserData limits an instance's user data, in bytes, with what the lab adds: Nova takes 65,535
// once they are encoded (base64). maxOwn is what a file may have of them.
const (
	maxUserData = 49_151
	maxOwn      = maxUserData - 4_096
)

// cloudConfig begins user data that configure an instance
// (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
const cloudConfig = "#cloud-config"

// form is another form of user data: what they begin with, and their type as a part of an archive.
type form struct{ begins, is string }

var forms = []form{
	{"#!", "text/x-shellscript"},
	{"#include", "text/x-include-url"},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"## template: jinja", "text/jinja2"},
}

// ownUserData reads the user data that a file gives an instance, with the rights of the user who
// asked; none without a file. No link leads out of the file's directory.
func ownUserData(file string) (data []byte, err error) {
	if file == "" {
		return nil, nil
	}
	err = asuser.Do(func() error {
		root, err := os.OpenRoot(filepath.Dir(file))
		if err != nil {
			return err
		}
		defer root.Close()
		data, err = formats.ReadBelow(root, filepath.Base(file))
		return err
	})
	if err == nil && len(data) > maxOwn {
		err = fmt.Errorf("has more than %d bytes", maxOwn)
	}
	if err != nil {
		return nil, fmt.Errorf("user_data: %s: %w", file, err)
	}
	if _, err := mergeUserData(map[string]any{logins: []string{}}, data); err != nil {
		return nil, fmt.Errorf("user_data: %s: %w", file, err)
	}
	return data, nil
}

// mergeUserData adds to an instance's own user data what the lab needs there. A cloud-config is
// merged with the lab's; any other form becomes a part beside it, of an archive.
func mergeUserData(lab map[string]any, own []byte) (out []byte, err error) {
	first, _, _ := strings.Cut(string(own), "\n")
	first = strings.TrimSpace(first)
	is := lists.Find(forms, func(f form) bool { return strings.HasPrefix(first, f.begins) }).is
	switch {
	case len(own) == 0:
		out = configOf(lab)
	case first == cloudConfig:
		out, err = mergeConfig(lab, own)
	case is != "":
		out, err = archive(configOf(lab), own, is)
	default:
		err = fmt.Errorf("it begins with %q: write %s, or #! and a script", first, cloudConfig)
	}
	if err == nil && len(out) > maxUserData {
		err = fmt.Errorf("with what the lab adds it has %d bytes, and the cloud takes %d", len(out), maxUserData)
	}
	return out, err
}

// logins is cloud-config's key of those that may log in.
const logins = "ssh_authorized_keys"

// mergeConfig merges two cloud-configs. The keys that let the lab in are not the owner's to set,
// but keys for logins are those of both.
func mergeConfig(lab map[string]any, own []byte) ([]byte, error) {
	merged := map[string]any{}
	if err := yaml.Unmarshal(own, &merged); err != nil {
		return nil, err
	}
	for _, key := range []string{"ssh_keys", "ssh_deletekeys"} {
		if _, has := merged[key]; has {
			return nil, fmt.Errorf("%s: leave it out, as the lab must know the instance's host key", key)
		}
	}
	for key, v := range lab {
		has, both := merged[key]
		switch {
		case !both:
			merged[key] = v
		case key == logins:
			list, ok := has.([]any)
			if !ok {
				return nil, fmt.Errorf("%s is not a list", logins)
			}
			for _, k := range v.([]string) {
				list = append(list, k)
			}
			merged[key] = list
		}
	}
	return configOf(merged), nil
}

func configOf(of map[string]any) []byte {
	b, err := yaml.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("cloud-config: %v", err)) // what YAML has been read as, and strings
	}
	return append([]byte(cloudConfig+"\n"), b...)
}

// archive joins two parts of user data (RFC 2046, section 5.1).
func archive(config, own []byte, is string) ([]byte, error) {
	var parts, out bytes.Buffer
	w := multipart.NewWriter(&parts)
	for _, part := range []struct {
		is   string
		data []byte
	}{{"text/cloud-config", config}, {is, own}} {
		to, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {part.is + `; charset="utf-8"`}})
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(part.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "Content-Type: multipart/mixed; boundary=%q\nMIME-Version: 1.0\n\n", w.Boundary())
	out.Write(parts.Bytes())
	return out.Bytes(), nil
}
