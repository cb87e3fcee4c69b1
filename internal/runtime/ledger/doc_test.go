// The tests of this package hold the ledger to what has broken the records of other agents, as their users reported it:
//
//	a crash in the middle of an append swallows the next record   TestHalfARecordIsSavedAsideAndDoesNotSwallowTheNext,
//	                                                              TestLedgerCutAtEveryByteRecoversItsWholeRecords
//	newlines of a tool's output break a record into several       TestToolOutputOfAnyBytesStaysOnOneLineAndComesBackExactly,
//	                                                              FuzzAppend
//	two writers continue one ledger with the same numbers         TestSecondOpenerIsRefusedAndToldWhoHoldsTheLedger,
//	                                                              TestDuplicateNumberOfAnOlderEpochIsIgnoredAndReported
//	a program of another version cannot read, or ruins, a record  TestLedgerOfAnEarlierVersionIsContinued,
//	                                                              TestLedgerOfANewerVersionIsRefusedAndLeftAlone,
//	                                                              TestUnknownTypesSurviveUnlessTheyAreCritical
//	the run goes on unrecorded on a full disk                     TestFullVolumeStopsDispatchBeforeAnUnrecordedCall,
//	                                                              TestFullDiskAtAnyWriteStillTakesTheStopRecord; a whole run in loop:
//	                                                              TestAFullDiskStopsTheRunBeforeACallThatIsNotOnRecord
//	a writer that was stopped for long wakes and writes           TestStoppedWriterWithoutLocksFailsItsBarrierWhenItWakes,
//	                                                              TestStaleWriterFailsItsBarrierAndItsRecordsAreIgnored
//	a call without a result makes every later request fail        in loop: TestAnUnansweredCallIsAnsweredBeforeTheNextRequest,
//	                                                              TestAKillBetweenAnyTwoRecordsLosesAndRepeatsNothing
//	nothing settles what a killed process left open               in loop: TestAnEpochReconcilesFirstAndAsksAfterwards
//	a clock that steps back changes the order                     TestAClockThatStepsBackDoesNotChangeTheOrder; a whole run in
//	                                                              loop: TestAClockThatStepsBackChangesNothing
//
// Loop is package internal/runtime/loop. Whole runs with real processes are in internal/cli (crash_test.go, stop_test.go) and
// in test/integration (disruption_test.go, outage_test.go, stop_test.go).
package ledger_test
