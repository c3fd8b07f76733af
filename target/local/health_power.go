package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// throttled are the bits in which the firmware of a Raspberry Pi reports problems of power supply
// and temperature (get_throttled in the documentation of vcgencmd). Each has a counterpart 16 bits
// higher: the problem has occurred since boot.
var throttled = []string{"the voltage is too low", "the processor's frequency is capped", "the processor is throttled",
	"it is too hot (soft limit)"}

const sinceBoot = 16

// throttling returns the problems that the bits report as of now, and as of earlier since boot.
func throttling(bits uint64) (now, before []string) {
	for i, what := range throttled {
		switch {
		case bits&(1<<i) != 0:
			now = append(now, what)
		case bits&(1<<(i+sinceBoot)) != 0:
			before = append(before, what)
		}
	}
	return now, before
}

// examinePower checks voltage and temperature, if the machine measures them: most do not.
func examinePower(sys string) (out []Finding) {
	if bits, ok := readThrottled(sys); ok {
		out = append(out, powerFinding(bits))
	}
	alarms, _ := filepath.Glob(sys + "/class/hwmon/*/*_alarm")
	for _, file := range alarms {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == "1" {
			out = append(out, alarmFinding(file))
		}
	}
	return out
}

func powerFinding(bits uint64) Finding {
	now, before := throttling(bits)
	f := Finding{What: "power", OK: true, Says: "neither too little voltage nor too hot since it was switched on"}
	switch {
	case len(now) > 0:
		f.OK, f.Warns, f.Says = false, true, strings.Join(now, ", ")+
			": it is slower than others, and figures do not compare"
	case len(before) > 0:
		f.OK, f.Warns, f.Says = false, true, "not now, but since it was switched on: "+strings.Join(before, ", ")
	default:
		return f
	}
	const tooLow, tooHot = 1 | 1<<sinceBoot, 8 | 8<<sinceBoot
	switch {
	case bits&tooLow != 0:
		f.Cure = "give it a supply that holds 5.1 V under load (3 A; a Pi 5: 5 A), a shorter USB cable, or PoE of enough watts"
	case bits&tooHot != 0:
		f.Cure = "give it a fan, or more air"
	default:
		f.Cure = "cool it, and look at its supply:  vcgencmd measure_temp; vcgencmd measure_volts"
	}
	return f
}

// readThrottled asks the firmware: through the kernel's file if there is one, else by the
// firmware's own program.
func readThrottled(sys string) (bits uint64, ok bool) {
	files, _ := filepath.Glob(sys + "/devices/platform/soc/soc:firmware/get_throttled")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			return parseThrottled(string(b))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "vcgencmd", "get_throttled").Output()
	if err != nil {
		return 0, false
	}
	return parseThrottled(string(out))
}

// parseThrottled reads "throttled=0x50005" (vcgencmd) or "50005" (the kernel's file).
func parseThrottled(s string) (bits uint64, ok bool) {
	s = strings.TrimSpace(s)
	s = strings.TrimPrefix(strings.TrimPrefix(s, "throttled="), "0x")
	bits, err := strconv.ParseUint(s, 16, 64)
	return bits, err == nil
}

// alarmFinding names a sensor that is beyond its limits (sysfs-interface of hwmon).
func alarmFinding(file string) Finding {
	dir, input := filepath.Dir(file), strings.SplitN(filepath.Base(file), "_", 2)[0]
	text := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(b))
	}
	name := text("name")
	if label := text(input + "_label"); label != "" {
		name += " " + label
	}
	f := Finding{What: "power", Warns: true, Says: fmt.Sprintf("sensor %s (%s): alarm", name, filepath.Base(file))}
	switch {
	case strings.HasPrefix(input, "in") && strings.Contains(file, "lcrit"):
		f.Says, f.Cure = f.Says+": the voltage is too low", "give it a stronger supply, or a shorter cable"
	case strings.HasPrefix(input, "temp"):
		f.Says, f.Cure = f.Says+": too hot", "give it a fan, or more air"
	case strings.HasPrefix(input, "curr"), strings.HasPrefix(input, "power"):
		f.Says, f.Cure = f.Says+": it takes more current than its limit",
			"a lower power mode (nvpmodel), or a stronger supply"
	}
	return f
}
