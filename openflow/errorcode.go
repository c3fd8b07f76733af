package openflow

import (
	"fmt"
	"strings"
)

// ErrorType is ofp_error_type (section 7.4.4).
type ErrorType uint16

const (
	ErrorHelloFailed ErrorType = iota
	ErrorBadRequest
	ErrorBadAction
	ErrorBadInstruction
	ErrorBadMatch
	ErrorFlowModFailed
	ErrorGroupModFailed
	ErrorPortModFailed
	ErrorTableModFailed
	ErrorQueueOpFailed
	ErrorSwitchConfigFailed
	ErrorRoleRequestFailed
	ErrorMeterModFailed
	ErrorTableFeaturesFailed

	ErrorExperimenter ErrorType = 0xffff
)

// ErrorCode is the type of an error, in the upper half, and its code, in the lower: one value
// for each error that the specification knows.
type ErrorCode uint32

// Type returns the type.
func (c ErrorCode) Type() ErrorType { return ErrorType(c >> 16) }

// Code returns the code, whose meaning depends on the type.
func (c ErrorCode) Code() uint16 { return uint16(c) }

// MakeErrorCode puts a type and a code together.
func MakeErrorCode(t ErrorType, code uint16) ErrorCode {
	return ErrorCode(t)<<16 | ErrorCode(code)
}

// Codes of OFPET_HELLO_FAILED (section 7.4.4).
const (
	HelloFailedIncompatible = ErrorCode(ErrorHelloFailed)<<16 + iota
	HelloFailedPermissions
)

// Codes of OFPET_BAD_REQUEST (section 7.4.4).
const (
	BadRequestBadVersion = ErrorCode(ErrorBadRequest)<<16 + iota
	BadRequestBadType
	BadRequestBadMultipart
	BadRequestBadExperimenter
	BadRequestBadExpType
	BadRequestPermissions
	BadRequestBadLen
	BadRequestBufferEmpty
	BadRequestBufferUnknown
	BadRequestBadTableID
	BadRequestIsSlave
	BadRequestBadPort
	BadRequestBadPacket
	BadRequestMultipartBufferOverflow
)

// Codes of OFPET_BAD_ACTION (section 7.4.4).
const (
	BadActionBadType = ErrorCode(ErrorBadAction)<<16 + iota
	BadActionBadLen
	BadActionBadExperimenter
	BadActionBadExpType
	BadActionBadOutPort
	BadActionBadArgument
	BadActionPermissions
	BadActionTooMany
	BadActionBadQueue
	BadActionBadOutGroup
	BadActionMatchInconsistent
	BadActionUnsupportedOrder
	BadActionBadTag
	BadActionBadSetType
	BadActionBadSetLen
	BadActionBadSetArgument
)

// Codes of OFPET_BAD_INSTRUCTION (section 7.4.4).
const (
	BadInstructionUnknownInst = ErrorCode(ErrorBadInstruction)<<16 + iota
	BadInstructionUnsupInst
	BadInstructionBadTableID
	BadInstructionUnsupMetadata
	BadInstructionUnsupMetadataMask
	BadInstructionBadExperimenter
	BadInstructionBadExpType
	BadInstructionBadLen
	BadInstructionPermissions
)

// Codes of OFPET_BAD_MATCH (section 7.4.4).
const (
	BadMatchBadType = ErrorCode(ErrorBadMatch)<<16 + iota
	BadMatchBadLen
	BadMatchBadTag
	BadMatchBadDLAddrMask
	BadMatchBadNWAddrMask
	BadMatchBadWildcards
	BadMatchBadField
	BadMatchBadValue
	BadMatchBadMask
	BadMatchBadPrereq
	BadMatchDupField
	BadMatchPermissions
)

// Codes of OFPET_FLOW_MOD_FAILED (section 7.4.4).
const (
	FlowModFailedUnknown = ErrorCode(ErrorFlowModFailed)<<16 + iota
	FlowModFailedTableFull
	FlowModFailedBadTableID
	FlowModFailedOverlap
	FlowModFailedPermissions
	FlowModFailedBadTimeout
	FlowModFailedBadCommand
	FlowModFailedBadFlags
)

// Codes of OFPET_GROUP_MOD_FAILED (section 7.4.4).
const (
	GroupModFailedGroupExists = ErrorCode(ErrorGroupModFailed)<<16 + iota
	GroupModFailedInvalidGroup
	GroupModFailedWeightUnsupported
	GroupModFailedOutOfGroups
	GroupModFailedOutOfBuckets
	GroupModFailedChainingUnsupported
	GroupModFailedWatchUnsupported
	GroupModFailedLoop
	GroupModFailedUnknownGroup
	GroupModFailedChainedGroup
	GroupModFailedBadType
	GroupModFailedBadCommand
	GroupModFailedBadBucket
	GroupModFailedBadWatch
	GroupModFailedPermissions
)

// Codes of OFPET_PORT_MOD_FAILED (section 7.4.4).
const (
	PortModFailedBadPort = ErrorCode(ErrorPortModFailed)<<16 + iota
	PortModFailedBadHwAddr
	PortModFailedBadConfig
	PortModFailedBadAdvertise
	PortModFailedPermissions
)

// Codes of OFPET_TABLE_MOD_FAILED (section 7.4.4).
const (
	TableModFailedBadTable = ErrorCode(ErrorTableModFailed)<<16 + iota
	TableModFailedBadConfig
	TableModFailedPermissions
)

// Codes of OFPET_QUEUE_OP_FAILED (section 7.4.4).
const (
	QueueOpFailedBadPort = ErrorCode(ErrorQueueOpFailed)<<16 + iota
	QueueOpFailedBadQueue
	QueueOpFailedPermissions
)

// Codes of OFPET_SWITCH_CONFIG_FAILED (section 7.4.4).
const (
	SwitchConfigFailedBadFlags = ErrorCode(ErrorSwitchConfigFailed)<<16 + iota
	SwitchConfigFailedBadLen
	SwitchConfigFailedPermissions
)

// Codes of OFPET_ROLE_REQUEST_FAILED (section 7.4.4).
const (
	RoleRequestFailedStale = ErrorCode(ErrorRoleRequestFailed)<<16 + iota
	RoleRequestFailedUnsup
	RoleRequestFailedBadRole
)

// Codes of OFPET_METER_MOD_FAILED (section 7.4.4).
const (
	MeterModFailedUnknown = ErrorCode(ErrorMeterModFailed)<<16 + iota
	MeterModFailedMeterExists
	MeterModFailedInvalidMeter
	MeterModFailedUnknownMeter
	MeterModFailedBadCommand
	MeterModFailedBadFlags
	MeterModFailedBadRate
	MeterModFailedBadBurst
	MeterModFailedBadBand
	MeterModFailedBadBandValue
	MeterModFailedOutOfMeters
	MeterModFailedOutOfBands
)

// Codes of OFPET_TABLE_FEATURES_FAILED (section 7.4.4).
const (
	TableFeaturesFailedBadTable = ErrorCode(ErrorTableFeaturesFailed)<<16 + iota
	TableFeaturesFailedBadMetadata
	TableFeaturesFailedBadType
	TableFeaturesFailedBadLen
	TableFeaturesFailedBadArgument
	TableFeaturesFailedPermissions
)

// errorNames holds, for each type, its name, the prefix of its codes, and their names.
var errorNames = [...]struct{ name, prefix, codes string }{
	{"HELLO_FAILED", "OFPHFC_", "INCOMPATIBLE EPERM"},
	{"BAD_REQUEST", "OFPBRC_", "BAD_VERSION BAD_TYPE BAD_MULTIPART BAD_EXPERIMENTER BAD_EXP_TYPE EPERM BAD_LEN BUFFER_EMPTY BUFFER_UNKNOWN BAD_TABLE_ID IS_SLAVE BAD_PORT BAD_PACKET MULTIPART_BUFFER_OVERFLOW"},
	{"BAD_ACTION", "OFPBAC_", "BAD_TYPE BAD_LEN BAD_EXPERIMENTER BAD_EXP_TYPE BAD_OUT_PORT BAD_ARGUMENT EPERM TOO_MANY BAD_QUEUE BAD_OUT_GROUP MATCH_INCONSISTENT UNSUPPORTED_ORDER BAD_TAG BAD_SET_TYPE BAD_SET_LEN BAD_SET_ARGUMENT"},
	{"BAD_INSTRUCTION", "OFPBIC_", "UNKNOWN_INST UNSUP_INST BAD_TABLE_ID UNSUP_METADATA UNSUP_METADATA_MASK BAD_EXPERIMENTER BAD_EXP_TYPE BAD_LEN EPERM"},
	{"BAD_MATCH", "OFPBMC_", "BAD_TYPE BAD_LEN BAD_TAG BAD_DL_ADDR_MASK BAD_NW_ADDR_MASK BAD_WILDCARDS BAD_FIELD BAD_VALUE BAD_MASK BAD_PREREQ DUP_FIELD EPERM"},
	{"FLOW_MOD_FAILED", "OFPFMFC_", "UNKNOWN TABLE_FULL BAD_TABLE_ID OVERLAP EPERM BAD_TIMEOUT BAD_COMMAND BAD_FLAGS"},
	{"GROUP_MOD_FAILED", "OFPGMFC_", "GROUP_EXISTS INVALID_GROUP WEIGHT_UNSUPPORTED OUT_OF_GROUPS OUT_OF_BUCKETS CHAINING_UNSUPPORTED WATCH_UNSUPPORTED LOOP UNKNOWN_GROUP CHAINED_GROUP BAD_TYPE BAD_COMMAND BAD_BUCKET BAD_WATCH EPERM"},
	{"PORT_MOD_FAILED", "OFPPMFC_", "BAD_PORT BAD_HW_ADDR BAD_CONFIG BAD_ADVERTISE EPERM"},
	{"TABLE_MOD_FAILED", "OFPTMFC_", "BAD_TABLE BAD_CONFIG EPERM"},
	{"QUEUE_OP_FAILED", "OFPQOFC_", "BAD_PORT BAD_QUEUE EPERM"},
	{"SWITCH_CONFIG_FAILED", "OFPSCFC_", "BAD_FLAGS BAD_LEN EPERM"},
	{"ROLE_REQUEST_FAILED", "OFPRRFC_", "STALE UNSUP BAD_ROLE"},
	{"METER_MOD_FAILED", "OFPMMFC_", "UNKNOWN METER_EXISTS INVALID_METER UNKNOWN_METER BAD_COMMAND BAD_FLAGS BAD_RATE BAD_BURST BAD_BAND BAD_BAND_VALUE OUT_OF_METERS OUT_OF_BANDS"},
	{"TABLE_FEATURES_FAILED", "OFPTFFC_", "BAD_TABLE BAD_METADATA BAD_TYPE BAD_LEN BAD_ARGUMENT EPERM"},
}

// String returns the name in the specification without its prefix OFPET_.
func (t ErrorType) String() string {
	switch {
	case int(t) < len(errorNames):
		return errorNames[t].name
	case t == ErrorExperimenter:
		return "EXPERIMENTER"
	}
	return fmt.Sprintf("error type %d", uint16(t))
}

// String returns the names in the specification, like OFPET_BAD_REQUEST/OFPBRC_BAD_LEN.
func (c ErrorCode) String() string {
	if int(c.Type()) < len(errorNames) {
		n := errorNames[c.Type()]
		if codes := strings.Fields(n.codes); int(c.Code()) < len(codes) {
			return "OFPET_" + n.name + "/" + n.prefix + codes[c.Code()]
		}
	}
	return fmt.Sprintf("OFPET_%v/%d", c.Type(), c.Code())
}
