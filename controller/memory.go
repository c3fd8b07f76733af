package controller

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// Datapath is a switch in this process, as its session sees it. When Handle returns, the message
// has been processed and may be reused, and all answers to it have been passed to Memory.Reply.
type Datapath interface {
	Handle(openflow.Message)
	Close()
}

// Insight is optional for a Datapath: facts that need no message to the switch.
type Insight interface {
	// Joined returns the port of another switch in this process that a port is connected to. The
	// connection holds until the port's state says otherwise.
	Joined(port uint32) (dpid uint64, far uint32, ok bool)

	// Activity returns a number that changes whenever the answer to a request for statistics would,
	// except for durations.
	Activity() uint64
}

// Memory is a session with a switch in the same process: no socket, no encoding, and no goroutine
// while it is idle. The switch calls Reply, Asynchronous and Closed.
type Memory struct {
	core
	name string
	dp   Datapath

	mu      sync.Mutex // guards what follows
	replies []openflow.Message
	queue   []openflow.Message
	packets int // PACKET_INs in the queue
	running bool
	ready   bool
}

// maxQueue is how many PACKET_INs of a switch may wait. Further ones are dropped, so that they cost
// the other switches nothing.
const maxQueue = 4096

// NewMemory returns a session for a switch in this process. The caller passes it to the switch,
// then calls Join.
func (c *Controller) NewMemory(name string) *Memory { return &Memory{core: newCore(c), name: name} }

// Join announces the switch to the apps, or returns an error that says why it cannot be accepted.
// If a switch with the same datapath id has just been removed, Join waits until its connection has
// ended and the apps have been told.
func (m *Memory) Join(dp Datapath) error {
	m.dp = dp
	if err := m.greet(); err != nil {
		dp.Close()
		return fmt.Errorf("%s: %w", m.name, err)
	}
	err := m.controller.join(m.sw)
	for leaves := patience.Leaving.Begin(); err != nil && !leaves.Over(); err = m.controller.join(m.sw) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		m.sw.dropPorts()
		dp.Close()
		return err
	}
	m.controller.log.Info("switch up", "switch", m.sw.Name(), "peer", m.name, "ports", len(m.sw.ports))
	m.greeted(m.sw)
	m.setReady(true)
	return nil
}

func (m *Memory) setReady(ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = ready
	m.start()
}

// greet performs the handshake.
func (m *Memory) greet() error {
	features, ok := m.ask(&openflow.FeaturesRequest{}).(*openflow.FeaturesReply)
	if !ok {
		return errors.New("the switch did not send its features")
	}
	m.sw = m.controller.newSwitch(m, features)
	m.dp.Handle(&openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{MissSendLen: openflow.MaxLenNoBuffer}})
	if m.controller.Owner == nil {
		m.readState(openflow.NoBody(openflow.MultipartPortDesc))
		return nil
	}
	m.read(openflow.NoBody(openflow.MultipartPortDesc))
	return standby(func(q openflow.Message) (openflow.Message, error) { return m.ask(q), nil })
}

// readState reads the switch's groups, its flow entries and whatever else is asked for.
func (m *Memory) readState(more ...openflow.MultipartBody) {
	m.read(append(more, openflow.NoBody(openflow.MultipartGroupDesc), openflow.AllFlows())...)
}

func (m *Memory) read(bodies ...openflow.MultipartBody) {
	for _, body := range bodies {
		if reply, ok := m.ask(&openflow.MultipartRequest{Body: body}).(*openflow.MultipartReply); ok {
			m.sw.takeState(reply.Body)
		}
	}
}

// readAgain reads the switch's state anew; events that arrive meanwhile are queued.
func (m *Memory) readAgain() error {
	m.setReady(false)
	defer m.setReady(true)
	m.readState()
	return nil
}

// ask sends the switch a message before the session is ready, and returns its answer.
func (m *Memory) ask(q openflow.Message) openflow.Message {
	m.dp.Handle(q)
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.replies
	m.replies = nil
	if len(got) == 0 {
		return nil
	}
	return got[0]
}

// Reply takes an answer of the switch. It is delivered only after the events before it have been
// handled, as over a connection: once a barrier is answered, the apps have seen all earlier events.
func (m *Memory) Reply(r openflow.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready || r.Transaction() != 0 { // to an app's request, possibly from within SwitchUp
		m.queue = append(m.queue, r)
		m.start()
		return
	}
	m.replies = append(m.replies, r)
}

// Asynchronous takes a message that the switch sends unasked.
func (m *Memory) Asynchronous(e openflow.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := e.(*openflow.PacketIn); ok {
		if m.packets >= maxQueue {
			return
		}
		m.packets++
		kept := *p
		kept.Data = slices.Clone(p.Data)
		e = &kept
	}
	m.queue = append(m.queue, e)
	m.start()
}

// start starts handling the queue, unless that is under way. mu must be held.
func (m *Memory) start() {
	if m.ready && !m.running && len(m.queue) > 0 {
		m.running = true
		go m.drain()
	}
}

// drain handles events one after the other until there are none.
func (m *Memory) drain() {
	for {
		m.mu.Lock()
		list := m.queue
		m.queue, m.packets = nil, 0
		if len(list) == 0 {
			m.running = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		for _, e := range list {
			switch e := e.(type) {
			case nil:
				m.down(m.sw)
				m.sw.dropPorts()
				return
			case *openflow.PacketIn:
				m.packetEvent(m.sw, e)
			default:
				m.event(m.sw, e)
			}
			_ = m.settle(m.sw, m.readAgain)
		}
	}
}

// Closed ends the session at the switch's request, after everything it has sent before.
func (m *Memory) Closed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = append(m.queue, nil)
	m.start()
}

func (m *Memory) peer() string { return m.name }

func (m *Memory) send(q openflow.Message) error {
	if m.isGone() {
		return ErrGone
	}
	if reflect.TypeOf(q).Elem().PkgPath() == ownTypes {
		m.dp.Handle(q)
		return nil
	}
	// An app's own type, which only knows its bytes: one message, or several.
	for b := q.AppendTo(nil); len(b) > 0; {
		n := int(openflow.ParseHeader(b).Length)
		one, err := openflow.Decode(b[:n])
		if err != nil {
			return err
		}
		m.dp.Handle(one)
		b = b[n:]
	}
	return nil
}

var ownTypes = reflect.TypeFor[openflow.Hello]().PkgPath()
