package experiment

import "errors"

// Targets of labs.
const (
	Local   = "local"   // Trivet, on this machine
	Sites   = "sites"   // Trivet, on this and other machines
	Mininet = "mininet" // the real one, for comparisons
)

// Move moves an experiment from this machine to those that on names: a file, or names for ssh. It
// is for experiments that do not name machines themselves.
func (e *Experiment) Move(on string) error {
	p, problems := e.Plan()
	if err := problems.Err(); err != nil {
		return err
	}
	for i := range p.Cells {
		if o := p.Cells[i].Lab.Options; o["target"] == Sites || o["on"] != "" {
			return errors.New("the experiment says itself where its labs are (lab: target, on): leave --on out, or that")
		}
	}
	e.On = on
	return nil
}

// move sets the target of a lab of Trivet's. Mininet's stays where it is.
func (e *Experiment) move(o Options) {
	if e.On != "" && o["target"] == Local {
		o["target"], o["on"] = Sites, e.On
	}
}
