package api

import (
	"maps"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// protocol is what the API has of a routing protocol whose app is the controller's own, beside its
// routes, which are in /routes. (Any app can serve /v1/controller/apps/<name>/: see package apps.)
type protocol struct {
	title    string       // before the names of its types in the OpenAPI document: "RIP"
	types    reflect.Type // one of them
	register func(*Server, huma.API)
	joins    map[string]joining // how the answers of a cluster's members are merged, by path
	events   map[string]any     // the types of its events, by name: see apps.Watched
}

var protocols []protocol

var protocolEvents = map[reflect.Type]bool{}

// addProtocol adds what the API has of a protocol. It must be called in an init function.
func addProtocol(p protocol) {
	protocols = append(protocols, p)
	maps.Copy(joins, p.joins)
	maps.Copy(eventTypes, p.events)
	for _, e := range p.events {
		protocolEvents[reflect.TypeOf(e)] = true
	}
}
