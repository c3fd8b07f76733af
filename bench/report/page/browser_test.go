package page_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"trivet.dev/trivet/bench/report/reporttest"
)

// patience is how long a browser may take for anything: machines are slow where tests run.
const patience = 2 * time.Minute

// browser is a Chromium without windows, driven by its DevTools protocol.
type browser struct {
	t    *testing.T
	conn *websocket.Conn
	last int
	page string   // the session of the protocol that is its page's
	said []string // what went wrong in the page
}

// open starts a browser and loads a page of a result in it. The test is skipped where there is no
// Chromium.
func open(t *testing.T, data []byte, width, height int) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("there is no Chromium here; scripts/bootstrap --test installs one on Debian")
	}
	dir, err := os.MkdirTemp("", "trivet-browser") // not the test's: a child of the browser may yet write to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for try := 0; os.RemoveAll(dir) != nil && try < 100; try++ {
			time.Sleep(100 * time.Millisecond)
		}
	})
	path := filepath.Join(dir, "index.html")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0", "--remote-allow-origins=*",
		"--user-data-dir="+filepath.Join(dir, "profile"), fmt.Sprintf("--window-size=%d,%d", width, height), "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its children
		cmd.Wait()
	})
	b := &browser{t: t, conn: dial(t, filepath.Join(dir, "profile", "DevToolsActivePort"))}
	t.Cleanup(func() { b.conn.Close() })
	b.attach()
	b.call("Page.enable", nil)
	b.call("Runtime.enable", nil)
	b.call("Log.enable", nil)
	b.call("Page.navigate", map[string]any{"url": (&url.URL{Scheme: "file", Path: path}).String()})
	b.until("document.readyState == 'complete' && location.protocol == 'file:'")
	return b
}

// dial waits for the browser to say where it listens.
func dial(t *testing.T, file string) *websocket.Conn {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		data, _ := os.ReadFile(file)
		if lines := strings.Split(strings.TrimSpace(string(data)), "\n"); len(lines) == 2 {
			conn, err := websocket.Dial("ws://127.0.0.1:"+lines[0]+lines[1], "", "http://127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatal("the browser does not listen")
		}
	}
}

// message is of the protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     any             `json:"error,omitempty"`
}

// attach takes the browser's only page.
func (b *browser) attach() {
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		json.Unmarshal(b.call("Target.getTargets", nil), &targets)
		for _, target := range targets.TargetInfos {
			if target.Type == "page" {
				var attached struct{ SessionID string }
				json.Unmarshal(b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &attached)
				b.page = attached.SessionID
				return
			}
		}
		if time.Now().After(deadline) {
			b.t.Fatal("the browser has no page")
		}
	}
}

// call sends a command and returns its result; what the page reports meanwhile is kept.
func (b *browser) call(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	b.last++
	b.conn.SetDeadline(time.Now().Add(patience))
	if err := websocket.JSON.Send(b.conn, message{ID: b.last, SessionID: b.page, Method: method, Params: params}); err != nil {
		b.t.Fatal(err)
	}
	for {
		var m message
		if err := websocket.JSON.Receive(b.conn, &m); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		if m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" || m.Method == "Page.javascriptDialogOpening" {
			text, _ := json.Marshal(m.Params)
			b.said = append(b.said, string(text))
		}
		if m.ID == b.last {
			if m.Error != nil {
				b.t.Fatalf("%s: %v", method, m.Error)
			}
			return m.Result
		}
	}
}

// ask evaluates an expression in the page.
func (b *browser) ask(expression string) any {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails any
	}
	json.Unmarshal(b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}), &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %v", expression, r.ExceptionDetails)
	}
	return r.Result.Value
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); b.ask(expression) != true; time.Sleep(30 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s does not become true; %v", expression, b.said)
		}
	}
}

// mouse moves or presses at a place in the window.
func (b *browser) mouse(kind string, x, y float64) {
	b.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y, "pointerType": "mouse"}
	if kind != "mouseMoved" {
		params["button"], params["clickCount"] = "left", 1
	}
	b.call("Input.dispatchMouseEvent", params)
}

// place is the middle of an element in the window, after it was scrolled to.
func (b *browser) place(selector string) (x, y float64) {
	b.t.Helper()
	at, ok := b.ask(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()`, selector)).([]any)
	if !ok {
		b.t.Fatalf("no place of %s", selector)
	}
	return at[0].(float64), at[1].(float64)
}

// TestBrowser proves in a real browser that figures are drawn, that values show under the pointer,
// that series can be switched off, that one can zoom in and back, and that the page is no wider
// than a telephone.
func TestBrowser(t *testing.T) {
	b := open(t, write(t, build(reporttest.Header(), reporttest.Samples())), 1200, 900)
	b.until("document.querySelectorAll('.plot > svg').length == 5")
	for selector, want := range map[string]float64{"#r-0-figure-1 path.curve": 3, "#r-0-figure-1 circle.dot": 10, "#r-0-figure-1 .whisker": 10, "#r-0-figure-1 .dot.hollow": 8, "#r-0-figure-2 rect.bar": 15,
		"#r-0-figure-3 rect.box": 10, "#r-0-figure-4 path.curve": 2, "#r-0-figure-5 path.curve": 19, "#r-0-figure-5 line.event": 2} {
		if got := b.ask(fmt.Sprintf("document.querySelectorAll(%q).length", selector)); got != want {
			t.Errorf("%s: %v, want %v", selector, got, want)
		}
	}
	x, y := b.place("#r-0-figure-1 circle.dot")
	b.mouse("mouseMoved", x, y)
	b.until(`document.querySelector("#r-0-figure-1 .tip").innerText.startsWith("embedded · hops 2\n15.97 Gbit/s\n95 %: 15.79 to 16.13\nn = 10")`)
	x, y = b.place("#r-0-figure-1 .legend button.k1")
	b.mouse("mousePressed", x, y)
	b.mouse("mouseReleased", x, y)
	b.until("document.querySelectorAll('#r-0-figure-1 path.curve').length == 2")
	x, y = b.place("#r-0-figure-1 svg")
	before := b.ask("document.querySelector('#r-0-figure-1 svg').textContent")
	b.mouse("mousePressed", x-100, y-50)
	b.mouse("mouseMoved", x, y)
	b.mouse("mouseMoved", x+100, y+50)
	b.mouse("mouseReleased", x+100, y+50)
	b.until("!document.querySelector('#r-0-figure-1 .legend').lastChild.hidden")
	if after := b.ask("document.querySelector('#r-0-figure-1 svg').textContent"); after == before {
		t.Error("nothing changed by zooming")
	}
	b.ask("document.querySelector('#r-0-figure-1 .legend').lastChild.click()")
	if after := b.ask("document.querySelector('#r-0-figure-1 svg').textContent"); after != before {
		t.Errorf("it is not as before zooming: %v, before %v", after, before)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": true})
	b.until("document.querySelector('#r-0-figure-1 svg').viewBox.baseVal.width < 360")
	if width := b.ask("document.documentElement.scrollWidth"); width != 360.0 {
		t.Errorf("the page is %v wide on a screen of 360", width)
	}
	if len(b.said) > 0 {
		t.Error(b.said)
	}
}

// TestBrowserHostile proves in a real browser that nothing of a hostile result runs, asks for
// anything, or keeps its figures from being drawn.
func TestBrowserHostile(t *testing.T) {
	b := open(t, write(t, build(reporttest.HostileResult(reporttest.Hostile))), 1200, 900)
	b.until("document.querySelectorAll('.plot > svg').length == 3")
	x, y := b.place("#r-0-figure-1 circle.dot")
	b.mouse("mouseMoved", x, y)
	b.until(`document.querySelector("#r-0-figure-1 .tip").innerText.includes("</script>")`)
	if got := b.ask("document.querySelectorAll('img[src=x], [onload], [onerror]').length"); got != 0.0 {
		t.Errorf("%v elements came in", got)
	}
	if title := b.ask("document.title"); title == "taken" {
		t.Error("a script of the result ran")
	}
	if len(b.said) > 0 {
		t.Error(b.said)
	}
}

// TestBrowserComparison proves in a real browser that the page of a comparison draws a figure for
// each metric with both sides, cuts no table on a usual screen, and is no wider than a telephone.
func TestBrowserComparison(t *testing.T) {
	b := open(t, compare(t, reporttest.Header(), reporttest.Samples(), "datapath", [2]string{"ovs", "embedded"}, ""), 1200, 900)
	b.until("document.querySelectorAll('.plot > svg').length == 3")
	for selector, want := range map[string]float64{"#c-figure-1 path.curve": 2, "#c-figure-1 circle.dot": 10, "#c-figure-1 .dot.hollow": 3, "#c-figure-2 .whisker": 10, ".outcome.bad": 9} {
		if got := b.ask(fmt.Sprintf("document.querySelectorAll(%q).length", selector)); got != want {
			t.Errorf("%s: %v, want %v", selector, got, want)
		}
	}
	x, y := b.place("#c-figure-2 circle.dot")
	b.mouse("mouseMoved", x, y)
	b.until(`document.querySelector("#c-figure-2 .tip").innerText.startsWith("ovs · hops 2\n127.4 µs\n95 %: ")`)
	for _, width := range []int{1200, 1400} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false})
		b.until(fmt.Sprintf("innerWidth == %d", width))
		if cut := b.ask("[...document.querySelectorAll('.table .scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"); cut != 0.0 {
			t.Errorf("%v tables are cut on a screen of %d", cut, width)
		}
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": true})
	b.until("document.querySelector('#c-figure-1 svg').viewBox.baseVal.width < 360")
	if width := b.ask("document.documentElement.scrollWidth"); width != 360.0 {
		t.Errorf("the page is %v wide on a screen of 360", width)
	}
	if len(b.said) > 0 {
		t.Error(b.said)
	}
}

// TestBrowserOverview proves in a real browser that of many results the contents are folded and the
// overview leads to each of them.
func TestBrowserOverview(t *testing.T) {
	r := build(reporttest.Header(), reporttest.Samples())
	b := open(t, write(t, r, r, r, r), 1200, 900)
	b.until("document.querySelectorAll('.plot > svg').length == 20")
	if got := b.ask("[document.querySelectorAll('nav details').length, document.querySelectorAll('nav details[open]').length, document.querySelectorAll('.overview tbody tr').length].join()"); got != "4,0,4" {
		t.Errorf("folded, open, rows: %v", got)
	}
	if got := b.ask("document.querySelector('.overview tbody tr').innerText"); !strings.Contains(got.(string), "A paper, figure 16") || !strings.Contains(got.(string), "1 not measured") {
		t.Errorf("%q", got)
	}
	b.ask("document.querySelector('.overview tbody tr:last-child a').click()")
	b.until("location.hash == '#r-3'")
	if len(b.said) > 0 {
		t.Error(b.said)
	}
}
