package openflow

import "fmt"

// Desc describes a switch: ofp_desc (section 7.3.5.1).
type Desc struct {
	Manufacturer string // at most 255 bytes, as Hardware, Software and Datapath
	Hardware     string
	Software     string
	SerialNumber string // at most 31 bytes
	Datapath     string // for people, as a hint to who or where this is
}

const descLen = 4*256 + 32

// MultipartType returns MultipartDesc.
func (m Desc) MultipartType() MultipartType { return MultipartDesc }

func (m Desc) appendTo(b []byte) []byte {
	b, p := extend(b, descLen)
	putText(p[:256], m.Manufacturer)
	putText(p[256:512], m.Hardware)
	putText(p[512:768], m.Software)
	putText(p[768:800], m.SerialNumber)
	putText(p[800:], m.Datapath)
	return b
}

func (d decoder) desc() (MultipartBody, error) {
	if err := d.exactly(bodyAt + descLen); err != nil {
		return nil, err
	}
	return Desc{
		d.text(bodyAt, 256), d.text(bodyAt+256, 256), d.text(bodyAt+512, 256), d.text(bodyAt+768, 32),
		d.text(bodyAt+800, 256),
	}, nil
}

// String describes the switch.
func (m Desc) String() string {
	return fmt.Sprintf("manufacturer=%q hardware=%q software=%q serial_number=%q datapath=%q",
		m.Manufacturer, m.Hardware, m.Software, m.SerialNumber, m.Datapath)
}

// ExperimenterMultipart is a request or reply that an experimenter defines (section 7.3.5.15).
type ExperimenterMultipart struct {
	Experimenter uint32
	ExpType      uint32
	Data         []byte
}

// MultipartType returns MultipartExperimenter.
func (m ExperimenterMultipart) MultipartType() MultipartType { return MultipartExperimenter }

func (m ExperimenterMultipart) appendTo(b []byte) []byte {
	b, p := extend(b, 8)
	put32(p, 0, m.Experimenter)
	put32(p, 4, m.ExpType)
	return append(b, m.Data...)
}

func (d decoder) experimenterMultipart() (MultipartBody, error) {
	if err := d.need(bodyAt, 8); err != nil {
		return nil, err
	}
	return ExperimenterMultipart{get32(d.b, bodyAt), get32(d.b, bodyAt+4), d.view(bodyAt+8, len(d.b))}, nil
}

// String describes the body.
func (m ExperimenterMultipart) String() string {
	return fmt.Sprintf("experimenter=%#08x type=%d %d bytes", m.Experimenter, m.ExpType, len(m.Data))
}
