package experiment_test

import (
	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
)

func init() { experiment.Trivets = drive.Vocabulary }
